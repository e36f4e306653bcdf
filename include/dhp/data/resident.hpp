// Device-resident input: one micro-batch, uploaded once and used for every place of every step. Measures
// a training step without its input, under the interface of the Loader.
#pragma once

#include <dhp/data/loader.hpp>

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace dhp {

template <Device Dev>
class ResidentLoader {
 public:
  /// The micro-batch holds the first samples of the batcher; steps have options.global_batch samples.
  template <Batcher B>
  ResidentLoader(Dev& dev, const B& batcher, const LoaderOptions& options)
      : options_(options),
        batching_(options.global_batch, options.global_batch, options.micro_batch) {
    check(batcher.size() >= options.micro_batch, "a micro-batch of ", options.micro_batch,
          " samples cannot be made of ", std::int64_t{batcher.size()});
    std::vector<std::int64_t> indices(static_cast<std::size_t>(options.micro_batch));
    std::iota(indices.begin(), indices.end(), std::int64_t{0});
    batch_ = upload(dev, batcher.collate(indices, 0), 0, {0, options.micro_batch});
    step_ = options.first_step;
  }

  [[nodiscard]] const Batching& batching() const { return batching_; }
  [[nodiscard]] std::int64_t step() const { return step_; }
  [[nodiscard]] StepPlan plan() const { return batching_.plan(step_); }
  [[nodiscard]] bool finished() const { return options_.epochs > 0 && step_ >= options_.epochs; }
  void start_at(std::int64_t step) { step_ = step; }

  [[nodiscard]] std::vector<MicroBatch<Dev>> next() {
    const auto step = plan();
    const Range mine = step.dealt_to(options_.replica, options_.replicas);
    std::vector<MicroBatch<Dev>> made;
    for (auto k = mine.first; k < mine.last; ++k) {
      MicroBatch<Dev> batch;
      batch.index = k;
      batch.first_sample = step.samples_of(k).first;
      batch.samples = batch_.samples;
      batch.input = batch_.input.share();
      for (const auto& [name, tensor] : batch_.side) batch.side.emplace_back(name, tensor.share());
      batch.counts = batch_.counts;
      made.push_back(std::move(batch));
    }
    ++step_;
    return made;
  }

 private:
  LoaderOptions options_;
  Batching batching_;
  MicroBatch<Dev> batch_;
  std::int64_t step_ = 0;
};

}  // namespace dhp
