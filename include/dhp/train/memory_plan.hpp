// MemoryPlan: a rank's memory, computed before it is allocated. The run's own code makes a step on the device Meta. So
// plan and run agree in weights, optimizer state, micro-batches in flight, buckets, and workspaces of operations.
#pragma once

#include <dhp/comm/meta_comm.hpp>
#include <dhp/ops/meta.hpp>
#include <dhp/parallel/schedule_check.hpp>
#include <dhp/parallel/schedule_time.hpp>
#include <dhp/train/training_run.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

/// The memory of one rank, in bytes.
struct MemoryPlan {
  std::size_t weights = 0;     ///< weights and running statistics
  std::size_t gradients = 0;   ///< gradients and exact sums
  std::size_t optimizer = 0;   ///< momenta and master weights
  std::size_t at_rest = 0;     ///< all tensors between steps, including inputs and tables
  std::size_t max_in_use = 0;  ///< peak bytes of all tensors
  std::size_t most = 0;        ///< peak bytes including free blocks that the allocator keeps
  /// Trace scopes at the peak, outermost first.
  std::vector<std::string> peak{};
  int in_flight = 0;  ///< most (chunk, micro-batch) pairs with activations at one time

  /// Returns the peak bytes of activations, gathered weights, gradients in flight and inputs.
  [[nodiscard]] std::size_t activations() const { return most - weights - gradients - optimizer; }
};

/// The run to plan.
template <class Options = TrainingOptions>
struct PlannedRun {
  Options options{};
  std::function<Model<Meta>(ModelBuilder<Meta>&)> describe{};
  /// Makes micro-batch k, counted over all steps.
  std::function<MicroBatch<Meta>(Meta&, std::int64_t)> batch{};
  std::int64_t micro_batches = 1;  ///< micro-batches of a step, of all replicas
  /// Number of micro-batches that a replica runs; for the others, only inputs are made. 0: all.
  std::int64_t runs = 0;
  /// Changes the run before its first step; may be empty.
  std::function<void(TrainingRun<Meta>&, const MicroBatch<Meta>& example)> prepare{};
  /// Number of steps. Plan several if shapes differ: free blocks of the other sizes then remain and add up.
  int steps = 1;
  bool threads = false;     ///< ranks are threads: a message is freed once it is received
  bool recomputes = false;  ///< backward passes compute activations again and take longer
};

namespace detail {
/// Returns MetaComm::ReceivedAfter of a stage. Assumes that a backward takes as long as two forwards, or three
/// if it computes activations again.
[[nodiscard]] inline std::vector<int> calls_until_received(const StageLists& lists, int chunks,
                                                           int stage, bool recomputes) {
  const ActionCosts costs{.backward_input = recomputes ? 2.0 : 1.0};
  const auto wiring = lists.wiring(chunks);
  const auto starts = simulate(lists, costs).start;
  const auto& mine = lists[as_size(stage)];
  std::vector<double> calls;  // times of this stage's receives and sends
  // For each message: the index of the call that sends it, and the time at which it is received.
  std::vector<std::pair<std::size_t, double>> sent;
  for (std::size_t at = 0; at < mine.size(); ++at) {
    const auto start = starts[as_size(stage)][at];
    const auto of_other = [&](std::int64_t part) {
      return part >= 0 && wiring.stage_of(part) != stage;
    };
    if (of_other(wiring.source(stage, mine[at]))) calls.push_back(start);
    const auto part = wiring.target(stage, mine[at]);
    if (!of_other(part)) continue;
    const int to = wiring.stage_of(part);
    const auto& others = lists[as_size(to)];
    const auto takes = std::find_if(others.begin(), others.end(), [&](const Action& other) {
      return other.micro_batch == mine[at].micro_batch && wiring.part(to, other) == part &&
             wiring.source(to, other) == wiring.part(stage, mine[at]);
    });
    sent.emplace_back(calls.size(), starts[as_size(to)][as_size(takes - others.begin())]);
    calls.push_back(start + costs.time_of(mine[at].kind));
  }
  std::vector<int> taken;
  for (const auto& [call, when] : sent) {
    auto next = call + 1;
    while (next < calls.size() && calls[next] < when) ++next;
    taken.push_back(static_cast<int>(next));
  }
  return taken;
}
}  // namespace detail

/// Plans the memory of a rank in this stage: the first rank of its replicas and tensor group, which holds at least as
/// much as the others.
template <class Options>
[[nodiscard]] MemoryPlan plan_memory(const PlannedRun<Options>& planned, int stage,
                                     MetaOptions device = {}) {
  auto options = planned.options;
  options.pipeline.measure_costs = false;  // nothing can be timed here
  options.trainer.record = false;
  const auto& layout = options.layout;
  Meta dev(device);
  const auto all = part_of(planned.micro_batches, layout.data, 0).size();
  const bool few = planned.runs > 0 && planned.runs < all;
  const auto micro_batches = few ? planned.runs * layout.data : planned.micro_batches;
  const auto share = part_of(micro_batches, layout.data, 0);
  const auto chunks = options.pipeline.chunks;
  const auto count = static_cast<int>(share.size());
  const auto lists = all_stages(options.pipeline.schedule, layout.pipeline, count, chunks);
  const auto report = check_schedule(lists, chunks, count, MetaComm<Meta>::send_capacity());
  auto world = MetaComm<Meta>::world(
      layout, stage * layout.replicas() * layout.tensor,
      planned.threads
          ? std::optional(detail::calls_until_received(lists, chunks, stage, planned.recomputes))
          : std::nullopt);
  auto example = planned.batch(dev, 0);
  TrainingRun<Meta> run(dev, Comm<Meta>::of(world), options, planned.describe, example);
  if (planned.prepare) planned.prepare(run, example);
  example = {};  // the run must not count the example
  MemoryPlan plan;
  for (int step = 0; step < planned.steps; ++step) {
    StepBatches<Meta> mine;
    mine.micro_batches = micro_batches;
    mine.same_shapes = true;  // spares an exchange about shapes between replicas
    std::vector<MicroBatch<Meta>> others;
    for (std::int64_t k = 0; k < all; ++k) {
      auto& batches = k < share.size() ? mine.batches : others;
      batches.push_back(planned.batch(dev, step * micro_batches + k));
      batches.back().index = k;
    }
    (void)run.trainer().start(mine);
    if (planned.threads) world.all_received();
    plan.at_rest = dev.memory().in_use_bytes();
  }
  plan.weights = run.store().weight_bytes();
  plan.gradients = run.store().gradient_bytes();
  plan.max_in_use = dev.memory().max_in_use_bytes();
  plan.most = dev.memory().max_held_bytes();
  plan.peak = dev.memory().max_in_use_in();
  for (const auto& state : run.optimizer().state()) plan.optimizer += state.buffer->size_bytes();
  plan.in_flight = report.max_until_weight_gradient[detail::as_size(stage)];
  return plan;
}

}  // namespace dhp
