// Every op for the device of the tests: kernels and libraries on a GPU, kernels alone where they are emulated.
#pragma once

#ifdef __CUDACC__
#include <dhp/cuda.cuh>
#else
#include <dhp/cuda/kernels.hpp>
#endif
