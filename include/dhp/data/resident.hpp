// A loader for benchmarks: uploads one step's micro-batches once and returns them at every step, so
// that input costs nothing.
#pragma once

#include <dhp/data/loader.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace dhp {

template <Device Dev>
class ResidentLoader {
 public:
  /// A step has the first options.global_batch samples, repeated if there are fewer.
  template <Batcher B>
  ResidentLoader(Dev& dev, const B& batcher, const LoaderOptions& options)
      : options_(options),
        batching_(options.global_batch, options.global_batch, options.micro_batch) {
    check(batcher.size() > 0, "the dataset is empty: no sample to train on");
    const auto step = batching_.plan(0);
    const Range mine = step.assigned_to(options.replica, options.replicas);
    for (auto k = mine.first; k < mine.last; ++k) {
      const Range samples = step.samples_of(k);
      std::vector<std::int64_t> indices;
      for (auto sample = samples.first; sample < samples.last; ++sample)
        indices.push_back(sample % batcher.size());
      batches_.push_back(upload(dev, batcher.collate(indices, 0), k, samples));
    }
    step_ = options.first_step;
  }

  [[nodiscard]] const Batching& batching() const { return batching_; }
  [[nodiscard]] std::int64_t step() const { return step_; }
  [[nodiscard]] StepPlan plan() const { return batching_.plan(step_); }
  [[nodiscard]] bool finished() const { return options_.epochs > 0 && step_ >= options_.epochs; }
  void start_at(std::int64_t step) { step_ = step; }

  [[nodiscard]] StepBatches<Dev> next() {
    auto made = empty_step<Dev>(plan(), options_);
    for (const auto& batch : batches_) made.batches.push_back(batch.share());
    ++step_;
    return made;
  }

 private:
  LoaderOptions options_;
  Batching batching_;
  std::vector<MicroBatch<Dev>> batches_;
  std::int64_t step_ = 0;
};

}  // namespace dhp
