// Batching: how a dataset is cut into steps, replicas and micro-batches.
//
// The samples of a step and of a replica follow from closed forms without state, so a run can start at any step.
// Micro-batch k of a step holds the step's samples [k*b, (k+1)*b), and replicas have whole micro-batches. The last step
// of an epoch may have fewer micro-batches, of which the last may be short. Nothing is padded; a replica may get none.
#pragma once

#include <dhp/core/error.hpp>
#include <dhp/core/shape.hpp>

#include <algorithm>
#include <cstdint>

namespace dhp {

/// One step: the samples at places [first, first + samples) in the order of the epoch.
struct StepPlan {
  std::int64_t step = 1;         ///< counted from 1
  std::int64_t epoch = 0;        ///< counted from 0
  std::int64_t first = 0;        ///< place of the step's first sample in the order of the epoch
  std::int64_t samples = 0;      ///< number of samples over all replicas
  std::int64_t micro_batch = 1;  ///< b, the samples of each micro-batch; the last may have fewer

  [[nodiscard]] std::int64_t micro_batches() const {
    return (samples + micro_batch - 1) / micro_batch;
  }
  /// Returns the samples of micro-batch k, counted from the first sample of the step.
  [[nodiscard]] Range samples_of(std::int64_t k) const {
    check(k >= 0 && k < micro_batches(), "no micro-batch ", k, " in a step of ", micro_batches());
    return {k * micro_batch, std::min((k + 1) * micro_batch, samples)};
  }
  /// Returns the micro-batches of one replica, which are contiguous.
  [[nodiscard]] Range assigned_to(int replica, int replicas) const {
    check(replica >= 0 && replica < replicas, "no replica ", replica, " of ", replicas);
    return part_of(micro_batches(), replicas, replica);
  }
};

/// A run's position in its data, in samples, so that a run with another global batch can continue from it.
struct DataPosition {
  std::int64_t steps_done = 0;
  /// Samples taken in steps_done steps, over all epochs; -1: as many as in steps_done steps of the resumed run.
  std::int64_t samples = 0;
  friend bool operator==(const DataPosition&, const DataPosition&) = default;
};

/// Cuts a dataset into steps; each epoch goes over the whole dataset once.
class Batching {
 public:
  /// All arguments count samples. The global batch must be a multiple of the micro-batch.
  Batching(std::int64_t dataset_size, std::int64_t global_batch, std::int64_t micro_batch)
      : size_(dataset_size), global_batch_(global_batch), micro_batch_(micro_batch) {
    check(dataset_size > 0,
          "there is no sample to train on: the dataset is empty, or held out as a whole");
    check(micro_batch > 0, "the micro-batch must be positive, got ", micro_batch);
    check(global_batch > 0 && global_batch % micro_batch == 0, "the global batch of ", global_batch,
          " is not a positive multiple of the micro-batch of ", micro_batch);
  }

  [[nodiscard]] std::int64_t dataset_size() const { return size_; }
  [[nodiscard]] std::int64_t steps_per_epoch() const { return steps_for(size_); }
  /// This batching cuts the steps after `from`; another batching may have cut the earlier steps.
  void resume_at(DataPosition from) {
    check(from.steps_done >= 0 && from.samples >= -1, "no data position is after ", from.steps_done,
          " steps and ", from.samples, " samples");
    from_ = {};
    from_ = from.samples < 0 ? after(from.steps_done) : from;
  }
  /// Returns the plan of a step, which is counted from 1.
  [[nodiscard]] StepPlan plan(std::int64_t step) const {
    check(step > from_.steps_done, "steps count from ", from_.steps_done + 1, ", got ", step);
    auto epoch = from_.samples / size_;
    auto first = from_.samples % size_;
    const auto at = step - from_.steps_done - 1;
    const auto in_first_epoch = steps_for(size_ - first);
    if (at < in_first_epoch) {
      first += at * global_batch_;
    } else {
      epoch += 1 + (at - in_first_epoch) / steps_per_epoch();
      first = (at - in_first_epoch) % steps_per_epoch() * global_batch_;
    }
    return {.step = step,
            .epoch = epoch,
            .first = first,
            .samples = std::min(global_batch_, size_ - first),
            .micro_batch = micro_batch_};
  }
  /// Returns the position after a number of steps.
  [[nodiscard]] DataPosition after(std::int64_t steps) const {
    if (steps == from_.steps_done) return from_;
    const auto last = plan(steps);
    return {steps, last.epoch * size_ + last.first + last.samples};
  }
  /// Returns the number of steps from the start of the run to the end of the given number of epochs, plus `more` steps
  /// of the next epoch. Returns 2^62 instead of a larger number.
  [[nodiscard]] std::int64_t steps_until(std::int64_t epochs, std::int64_t more = 0) const {
    const auto whole = epochs - from_.samples / size_ - 1;  // epochs after the epoch of from_
    if (whole < 0) {
      const auto left = std::min(more * global_batch_, size_) - (from_.samples - epochs * size_);
      return from_.steps_done + steps_for(std::max<std::int64_t>(left, 0));
    }
    constexpr auto most = std::int64_t{1} << 62;
    if (whole > (most - from_.steps_done) / steps_per_epoch() - 1) return most;
    return from_.steps_done + steps_for(size_ - from_.samples % size_) + whole * steps_per_epoch() +
           more;
  }

 private:
  [[nodiscard]] std::int64_t steps_for(std::int64_t samples) const {
    return samples / global_batch_ + (samples % global_batch_ != 0 ? 1 : 0);
  }
  std::int64_t size_, global_batch_, micro_batch_;
  DataPosition from_{};
};

}  // namespace dhp
