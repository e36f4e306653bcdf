// StepSource: where a training run takes its steps from. A Loader is one; derive from it for data of another kind,
// such as those that a simulation makes while it trains.
#pragma once

#include <dhp/data/batching.hpp>
#include <dhp/tensor/micro_batch.hpp>

#include <cstdint>

namespace dhp {

/// The reader of a source. A training run fills it in.
struct DataReader {
  std::uint64_t seed = 0;
  int replica = 0;  ///< index on the data axis
  int replicas = 1;
  bool reads_input = true;  ///< false: a later stage, which needs side inputs alone

  friend bool operator==(const DataReader&, const DataReader&) = default;
};

template <class Dev>
class StepSource {
 public:
  virtual ~StepSource() = default;

  /// A training run calls this once, before the first step.
  virtual void read_as(const DataReader& reader) = 0;
  /// Any micro-batch; its shapes give the costs that stages are cut by.
  [[nodiscard]] virtual MicroBatch<Dev> example() = 0;
  /// The micro-batches of this replica in the next step.
  [[nodiscard]] virtual StepBatches<Dev> next() = 0;
  /// The next step begins there: later, or earlier.
  virtual void start_at(DataPosition from) = 0;
  /// Steps before the next one.
  [[nodiscard]] virtual std::int64_t steps_done() const = 0;
  /// Steps until the data end; 0: they never do.
  [[nodiscard]] virtual std::int64_t steps() const = 0;
  /// The epoch of the next step, counted from 0.
  [[nodiscard]] virtual std::int64_t epoch() const { return 0; }

  [[nodiscard]] bool finished() const { return steps() > 0 && steps_done() >= steps(); }
};

}  // namespace dhp
