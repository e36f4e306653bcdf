// The gradient check of a layer, and a batch for it. On any device.
#pragma once

#include <dhp/nn/check_gradients.hpp>
#include <tests/support/tensors.hpp>

namespace tests {

/// Samples of `length` rows each, for embeddings, attention and dropout.
template <class Dev>
MicroBatch<Dev> token_batch(Dev& dev, std::int64_t samples, std::int64_t length,
                            std::int64_t vocabulary) {
  std::vector<std::int32_t> ids, positions, offsets{0}, lengths;
  std::vector<std::int64_t> numbers;
  for (std::int64_t row = 0; row < samples * length; ++row) {
    ids.push_back(static_cast<std::int32_t>(row * 7 % vocabulary));
    positions.push_back(static_cast<std::int32_t>(row % length));
    numbers.push_back(row);
  }
  for (std::int64_t n = 0; n < samples; ++n) {
    offsets.push_back(static_cast<std::int32_t>((n + 1) * length));
    lengths.push_back(static_cast<std::int32_t>(length - n % 2));
  }
  MicroBatch<Dev> batch;
  batch.samples = samples;
  const auto put = [&](const char* name, const auto& values) {
    batch.side.emplace_back(name, tensor_of(dev, values));
  };
  put("token_ids", ids);
  put("positions", positions);
  put("offsets", offsets);
  put("lengths", lengths);
  put("row_numbers", numbers);
  batch.counts = {{"samples", samples}};
  return batch;
}

template <class Dev, class L>
void check_layer_gradients(Dev& dev, L& layer, const Tensor<Dev>& x, const MicroBatch<Dev>& batch) {
  const auto gap = check_gradients(dev, layer, x, batch);
  INFO("the gradient of ", gap.where);
  CHECK(gap.worst < 1e-6);
}

}  // namespace tests
