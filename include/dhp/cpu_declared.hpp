// dhp on the CPU for programs of several files: dhp/cpu.hpp with extern template instances. One of the files must
// include dhp/cpu_instances.ipp, and all files must be compiled with the same -march.
#pragma once

#include <dhp/cpu.hpp>

#define DHP_INSTANCE extern template
#include <dhp/cpu_instances.ipp>
