// ops: one header per operation. dhp/cpu.hpp or dhp/cuda.cuh adds the kernels.
#pragma once

#include <dhp/ops/activation.hpp>
#include <dhp/ops/attention.hpp>
#include <dhp/ops/batch_norm.hpp>
#include <dhp/ops/cached_attention.hpp>
#include <dhp/ops/compression.hpp>
#include <dhp/ops/conv2d.hpp>
#include <dhp/ops/cross_entropy.hpp>
#include <dhp/ops/dropout.hpp>
#include <dhp/ops/elementwise.hpp>
#include <dhp/ops/embedding.hpp>
#include <dhp/ops/exact_sum.hpp>
#include <dhp/ops/fingerprint.hpp>
#include <dhp/ops/gemm.hpp>
#include <dhp/ops/layer_norm.hpp>
#include <dhp/ops/linear.hpp>
#include <dhp/ops/optimizer.hpp>
#include <dhp/ops/pool.hpp>
#include <dhp/ops/reduce.hpp>
#include <dhp/ops/rotary.hpp>
#include <dhp/ops/rows.hpp>
#include <dhp/ops/segments.hpp>
#include <dhp/ops/step.hpp>
