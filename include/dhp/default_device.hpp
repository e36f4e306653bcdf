// DefaultDevice: the device of the compiler. A program that names DefaultDevice is compiled by g++ for Cpu and by nvcc
// for Cuda, without a changed line.
#pragma once

#include <dhp/core/config.hpp>

#ifdef __CUDACC__
#include <dhp/cuda.cuh>
#else
#include <dhp/cpu.hpp>
#endif

namespace dhp {

#ifdef __CUDACC__
using DefaultDevice = Cuda;
#else
using DefaultDevice = Cpu;
#endif

}  // namespace dhp
