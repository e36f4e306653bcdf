// device: the concept Device and the device Cpu.
#pragma once

#include <dhp/device/cpu.hpp>
#include <dhp/device/device.hpp>
