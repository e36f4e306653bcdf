// StepSource: the source of a training run's steps, such as a Loader. Derive from it for other data, such as the output
// of a simulation that runs while the model trains.
#pragma once

#include <dhp/data/batching.hpp>
#include <dhp/tensor/micro_batch.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace dhp {

/// The rank that reads from a source. A training run fills in the fields.
struct DataReader {
  std::uint64_t seed = 0;
  int replica = 0;  ///< index on the data axis
  int replicas = 1;
  bool reads_input = true;  ///< false for later stages, which need only side inputs

  friend bool operator==(const DataReader&, const DataReader&) = default;
};

template <class Dev>
class StepSource {
 public:
  StepSource() = default;
  StepSource(const StepSource&) {}  // a copy is not claimed
  StepSource& operator=(const StepSource&) { return *this; }
  virtual ~StepSource() = default;

  /// A training run calls this at its start; an evaluation or prediction calls it before its pass.
  virtual void read_as(const DataReader& reader) = 0;
  /// Returns any micro-batch; its shapes determine where stages are cut.
  [[nodiscard]] virtual MicroBatch<Dev> example() = 0;
  /// Returns the micro-batches of this replica in the next step.
  [[nodiscard]] virtual StepBatches<Dev> next() = 0;
  /// Makes the next step begin at `from`, which may be later or earlier.
  virtual void start_at(DataPosition from) = 0;
  /// Returns the number of steps before the one that next() returns.
  [[nodiscard]] virtual std::int64_t steps_done() const = 0;
  /// Returns the total number of steps, from the start of the data; 0 if the data never end.
  [[nodiscard]] virtual std::int64_t steps() const = 0;
  /// Returns the epoch of the next step, counted from 0.
  [[nodiscard]] virtual std::int64_t epoch() const { return 0; }
  /// Describes what all ranks must read alike, such as "100 samples in steps of 10". Runs compare it between ranks.
  [[nodiscard]] virtual std::string in_common() const { return {}; }

  /// Claims these data for a training run: while the result exists, another claim throws Error.
  [[nodiscard]] std::shared_ptr<const void> claim() {
    check(!claimed_->exchange(true),
          "another training run takes its steps from these data; give each run data of its own");
    return {claimed_.get(), [flag = claimed_](const auto*) { *flag = false; }};
  }

  [[nodiscard]] bool finished() const { return steps() > 0 && steps_done() >= steps(); }

 private:
  std::shared_ptr<std::atomic<bool>> claimed_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace dhp
