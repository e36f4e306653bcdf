// DefaultDevice: Cuda in a program that nvcc compiles, Cpu in any other program.
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
