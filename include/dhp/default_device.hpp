// DefaultDevice: Cpu if g++ compiles the program, Cuda if nvcc does. The program needs no changed line.
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
