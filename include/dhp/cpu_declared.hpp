// dhp on the Cpu, for programs of several files: dhp/cpu.hpp, and the promise that one of the files includes
// dhp/cpu_instances.ipp. All must be compiled with the same -march.
#pragma once

#include <dhp/cpu.hpp>

#define DHP_INSTANCE extern template
#include <dhp/cpu_instances.ipp>
