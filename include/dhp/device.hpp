// device: the concept Device, and the Cpu.
#pragma once

#include <dhp/device/cpu.hpp>
#include <dhp/device/device.hpp>
