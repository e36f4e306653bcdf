// dhp on the GPU: all of dhp with the kernels of device Cuda, which are dhp's own, cuBLASLt's and cuDNN's. Compile with
// nvcc and --expt-relaxed-constexpr.
#pragma once

#include <dhp/core/config.hpp>

#include <dhp/cuda/cublas_epilogue.hpp>
#include <dhp/cuda/cublas_gemm.hpp>
#include <dhp/cuda/cudnn_attention.hpp>
#include <dhp/cuda/cudnn_batch_norm.hpp>
#include <dhp/cuda/cudnn_conv2d.hpp>
#include <dhp/cuda/kernels.hpp>
#include <dhp/cuda/launch.cuh>
#include <dhp/cuda/library_report.hpp>
#include <dhp/dhp.hpp>
