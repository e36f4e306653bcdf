// Runs with and without ZeRO, which must agree in every bit. On any device.
#pragma once

#include <tests/parallel/layouts.hpp>

namespace tests {

inline constexpr std::int64_t words = 301;  // the embedding is larger than a page

template <class Dev>
struct ShardedCases {
  /// A BERT of 14 pages, so that each of four replicas has several.
  static Model<Dev> small_bert(ModelBuilder<Dev>& build) {
    return examples::bert(build, {.layers = 2,
                                  .hidden = 64,
                                  .heads = 4,
                                  .vocabulary = words,
                                  .positions = everything_length,
                                  .sequence_length = everything_length});
  }
  static RunResult run_bert(const Layout& layout, const RunSettings& settings) {
    return run_layout<Dev>(layout, settings, small_bert, [](Dev& dev, int step, std::int64_t k) {
      return everything_batch(dev, step, k, words);
    });
  }
  static RunResult run_everything(const Layout& layout, const RunSettings& settings) {
    return run_layout<Dev>(
        layout, settings, [](ModelBuilder<Dev>& build) { return everything(build); },
        [](Dev& dev, int step, std::int64_t k) { return everything_batch(dev, step, k); });
  }
};

inline constexpr std::array zero_stages{ZeroStage::optimizer, ZeroStage::gradients,
                                        ZeroStage::weights};

/// Buckets of one page or a little more.
inline RunSettings with(ZeroStage stage, RunSettings settings) {
  settings.sharding = {stage, 64 << 10};
  return settings;
}

inline void check_same(const RunResult& plain, const RunResult& sharded) {
  CHECK(sharded.losses == plain.losses);
  CHECK(sharded.skipped == plain.skipped);
  for (std::size_t step = 0; step < plain.norms.size(); ++step)  // skipped steps have norm NaN
    if (!plain.skipped[0][step]) CHECK(sharded.norms[step] == plain.norms[step]);
  CHECK(difference(plain.values, sharded.values).tensor == "");
}

inline RunSettings three_steps(bool deterministic, DType compute = DType::f32) {
  return {.compute = compute, .deterministic = deterministic, .groups = 2, .steps = 3, .lr = 0.01};
}

}  // namespace tests
