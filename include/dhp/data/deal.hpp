// Which samples a step works on and which of them a data replica gets: closed forms, no state, so that
// any step can be started at directly. Micro-batch k of a step holds its samples [k*b, (k+1)*b);
// replicas are dealt whole micro-batches in contiguous runs. The last step of an epoch may have fewer
// micro-batches and a short last one; nothing is padded, and a replica may get none.
#pragma once

#include <dhp/core/shape.hpp>

#include <algorithm>
#include <cstdint>

namespace dhp {

/// One step: the places [first, first + samples) of the order of its epoch.
struct StepPlan {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  std::int64_t first = 0;        ///< place of its first sample in the order of the epoch
  std::int64_t samples = 0;      ///< over all replicas
  std::int64_t micro_batch = 1;  ///< b: samples of each micro-batch but perhaps the last

  [[nodiscard]] std::int64_t micro_batches() const {
    return (samples + micro_batch - 1) / micro_batch;
  }
  /// Samples of micro-batch k, counted from the first sample of the step.
  [[nodiscard]] Range samples_of(std::int64_t k) const {
    check(k >= 0 && k < micro_batches(), "no micro-batch ", k, " in a step of ", micro_batches());
    return {k * micro_batch, std::min((k + 1) * micro_batch, samples)};
  }
  /// The micro-batches of one replica.
  [[nodiscard]] Range dealt_to(int replica, int replicas) const {
    check(replica >= 0 && replica < replicas, "no replica ", replica, " of ", replicas);
    return part_of(micro_batches(), replicas, replica);
  }
};

/// How a dataset is cut into steps; each epoch goes over all of it once.
class Batching {
 public:
  /// All counted in samples. The global batch must be a multiple of the micro-batch.
  Batching(std::int64_t dataset_size, std::int64_t global_batch, std::int64_t micro_batch)
      : size_(dataset_size), global_batch_(global_batch), micro_batch_(micro_batch) {
    check(dataset_size > 0, "there is no sample to train on: the dataset is empty");
    check(micro_batch > 0, "the micro-batch must be positive, got ", micro_batch);
    check(global_batch > 0 && global_batch % micro_batch == 0, "the global batch of ", global_batch,
          " is not a positive multiple of the micro-batch of ", micro_batch);
  }

  [[nodiscard]] std::int64_t dataset_size() const { return size_; }
  [[nodiscard]] std::int64_t steps_per_epoch() const {
    return size_ / global_batch_ + (size_ % global_batch_ != 0 ? 1 : 0);
  }
  [[nodiscard]] StepPlan plan(std::int64_t step) const {
    check(step >= 0, "steps count from 0, got ", step);
    const std::int64_t first = step % steps_per_epoch() * global_batch_;
    return {.step = step,
            .epoch = step / steps_per_epoch(),
            .first = first,
            .samples = std::min(global_batch_, size_ - first),
            .micro_batch = micro_batch_};
  }

 private:
  std::int64_t size_;
  std::int64_t global_batch_;
  std::int64_t micro_batch_;
};

}  // namespace dhp
