// State of a pipeline's stage while it runs the actions of its schedule once.
#pragma once

#include <dhp/parallel/action.hpp>
#include <dhp/parallel/partition.hpp>
#include <dhp/parallel/trainable.hpp>

#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

namespace dhp::detail {

/// A micro-batch in a chunk, between its forward and its last backward action.
template <class Dev>
struct MicroBatchState {
  MicroBatchState(const StepContext& context, const MicroBatch<Dev>& batch)
      : tape(context, &batch) {}
  Tape<Dev> tape;
  std::vector<Work<Dev>> deferred;  // weight gradients
};

/// One run of the schedule.
template <class Dev>
struct Execution {
  Step<Dev> step{};
  /// With a context axis, this rank's shares of the micro-batches.
  std::vector<MicroBatch<Dev>> shares{};
  StepContext context;
  Replicas<Dev>* replicas = nullptr;
  const Action* next = nullptr;  // the action after the one under way
  Tensor<Dev> scales;            // weight of each loss term in the objective, f64 [terms]
  std::map<std::pair<int, int>, MicroBatchState<Dev>> in_flight;  // key: (chunk, micro-batch)
  // Between two chunks of this rank, by (receiving part, micro-batch); first forward, then back.
  std::map<std::pair<int, int>, Tensor<Dev>> handed_over;
  std::vector<int> layer_runs_left{};  // one for each layer; the loss comes after the last
  std::unordered_map<const ParameterState<Dev>*, int> writers_left{};
  Tensor<Dev> losses;  // f64 [micro-batches, terms, loss_fields]
  bool predicts = false;
  std::vector<Tensor<Dev>> predictions;  // one for each micro-batch, in order
};

}  // namespace dhp::detail
