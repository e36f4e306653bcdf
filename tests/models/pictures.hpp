// A micro-batch of labeled pictures in double.
#pragma once

#include <dhp/cpu.hpp>

namespace tests {

/// A picture of class c is noise around a brightness of c.
inline dhp::MicroBatch<dhp::Cpu> pictures(dhp::Cpu& dev, std::int64_t side, std::int64_t classes,
                                          std::int64_t k) {
  constexpr std::int64_t samples = 4;
  const dhp::RandomStream random{.seed = 21};
  std::vector<double> pixels;
  std::vector<std::int32_t> labels;
  for (std::int64_t n = k * samples; n < (k + 1) * samples; ++n) {
    labels.push_back(static_cast<std::int32_t>(n * 7 % classes));
    for (std::int64_t at = 0; at < side * side * 3; ++at)
      pixels.push_back(0.3 * labels.back() +
                       random.normal(static_cast<std::uint64_t>(n * side * side * 3 + at)));
  }
  dhp::MicroBatch<dhp::Cpu> batch;
  batch.index = k;
  batch.first_sample = k * samples;
  batch.samples = samples;
  batch.input = dhp::Tensor<dhp::Cpu>::from_host(dev, {samples, side, side, 3}, pixels);
  batch.side.emplace_back("labels", dhp::Tensor<dhp::Cpu>::from_host(dev, {samples}, labels));
  batch.counts = {{"samples", samples}};
  return batch;
}

}  // namespace tests
