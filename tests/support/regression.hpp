// Small regressions: micro-batches for the mean squared error, and layers for them. On any device.
#pragma once

#include <dhp/nn/linear.hpp>
#include <dhp/nn/mean_squared_error.hpp>
#include <tests/support/tensors.hpp>

namespace tests {

/// Micro-batch `index`, with one sample per row of x.
template <class Dev>
MicroBatch<Dev> regression_batch(std::int64_t index, Tensor<Dev> x, Tensor<Dev> targets) {
  MicroBatch<Dev> batch;
  batch.index = index;
  batch.samples = x.shape()[0];
  batch.counts = {{"elements", targets.count()}};
  batch.input = std::move(x);
  batch.side.emplace_back("targets", std::move(targets));
  return batch;
}

/// y = weight * x with a single weight, which starts at `weight`.
template <class Dev>
Linear<Dev> one_weight(ModelBuilder<Dev>& build, const std::string& name, double weight = 1) {
  return {build, name, {.in = 1, .out = 1, .bias = false, .weight_init = constant(weight)}};
}

/// Splits the layers "first" and "second" over the tensor axis, and no others.
template <class Dev>
void split_first_and_second(ModelBuilder<Dev>& build) {
  build.place({{"first.*", Placement::columns},
               {"second.weight", Placement::rows},
               {"*", Placement::replicated}});
}

}  // namespace tests
