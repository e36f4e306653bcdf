// All ops for the test's device: dhp's kernels with the libraries on a GPU, dhp's kernels alone when emulated.
#pragma once

#ifdef __CUDACC__
#include <dhp/cuda.cuh>
#else
#include <dhp/cuda/kernels.hpp>
#endif
