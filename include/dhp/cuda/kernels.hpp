// Includes dhp's own kernels of all ops, for any KernelDevice. dhp/cuda.cuh adds the libraries.
#pragma once

#include <dhp/cuda/activation.hpp>
#include <dhp/cuda/batch_norm.hpp>
#include <dhp/cuda/cached_attention.hpp>
#include <dhp/cuda/compression.hpp>
#include <dhp/cuda/cross_entropy.hpp>
#include <dhp/cuda/dropout.hpp>
#include <dhp/cuda/elementwise.hpp>
#include <dhp/cuda/exact_sum.hpp>
#include <dhp/cuda/fallback_attention.hpp>
#include <dhp/cuda/fallback_conv2d.hpp>
#include <dhp/cuda/fallback_gemm.hpp>
#include <dhp/cuda/fingerprint.hpp>
#include <dhp/cuda/layer_norm.hpp>
#include <dhp/cuda/optimizer.hpp>
#include <dhp/cuda/pool.hpp>
#include <dhp/cuda/reduce.hpp>
#include <dhp/cuda/rotary.hpp>
#include <dhp/cuda/rows.hpp>
#include <dhp/cuda/segments.hpp>
#include <dhp/cuda/step.hpp>
#include <dhp/cuda/tree_sum.hpp>
