// LayoutPlanner: the layouts in which a run can continue when its ranks change, and the estimated step time in each.
#pragma once

#include <dhp/comm/gather.hpp>
#include <dhp/data/batching.hpp>

#include "../report/memory.hpp"
#include "training.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace examples {

/// Returns whether each replica has a micro-batch in each full step (with local steps in each step), and equally many
/// as the others in each step if the model needs that, as synchronized batch norm does.
[[nodiscard]] inline bool gives_work_to_all(const TrainingSetup& setup,
                                            const dhp::MeshShape& layout) {
  const auto& options = setup.options;
  const dhp::Batching epoch(options.resident() ? options.global_batch : setup.train.size(),
                            options.global_batch, options.micro_batch);
  const auto first = epoch.plan(1).micro_batches();
  const auto last = epoch.plan(epoch.steps_per_epoch()).micro_batches();
  const bool equal = first % layout.data == 0 && last % layout.data == 0;
  const bool alone = std::holds_alternative<dhp::LocalSgd>(options.reducer);
  return layout.data <= (alone ? last : first) && (equal || !setup.waits_for_replicas);
}

class LayoutPlanner {
 public:
  /// Keeps a reference to the setup. limit_bytes: this rank's memory limit, before it allocates any.
  LayoutPlanner(const TrainingSetup& setup, std::size_t limit_bytes)
      : setup_(setup),
        planner_(setup),
        model_(planner_.step_model(cluster_of(setup.options, on_gpu))),
        limit_bytes_(static_cast<double>(limit_bytes)) {}

  /// Sets one limit for all ranks, the smallest of those at the job's start. Ranks that join take it over. Collective.
  void agree_on_limit(Dev& dev, dhp::Comm<Dev>& world) {
    using Limit = std::pair<bool, double>;  // whether the limit is known, and its bytes
    const auto all = dhp::detail::gather_values(dev, world, Limit{agreed_, limit_bytes_});
    const bool known = std::ranges::any_of(all, &Limit::first);
    limit_bytes_ = std::numeric_limits<double>::infinity();
    for (const auto& [agreed, bytes] : all)
      if (agreed || !known) limit_bytes_ = std::min(limit_bytes_, bytes);
    agreed_ = true;
  }

  /// Returns seconds, or nullopt if the layout cannot run: the model cannot be cut this way, a replica has nothing to
  /// do, or a rank's memory is too small for a step, or for the state of two layouts, which a change needs.
  [[nodiscard]] std::optional<double> step_time(const dhp::MeshShape& layout) {
    const auto [known, fresh] = plans_.try_emplace({layout.data, layout.tensor, layout.pipeline});
    auto& plan = known->second;
    if (fresh && gives_work_to_all(setup_, layout)) plan = planned(layout);
    if (plan.bytes > limit_bytes_) return {};
    return plan.time;
  }

 private:
  struct Plan {
    double bytes = std::numeric_limits<double>::infinity();  // infinite: the layout cannot run
    double time = 0;
  };

  [[nodiscard]] Plan planned(const dhp::MeshShape& layout) {
    auto as = planner_.layout();
    as.mesh = layout;
    const auto time = model_(as);
    const auto stages = time ? planner_.plan(as) : std::vector<dhp::MemoryPlan>();
    if (stages.empty()) return {};
    Plan plan{0, time->total()};
    for (const auto& stage : stages)
      plan.bytes = std::max(
          {plan.bytes, static_cast<double>(stage.most), 2 * static_cast<double>(stage.at_rest)});
    return plan;
  }

  const TrainingSetup& setup_;
  MemoryPlanner planner_;
  StepModel model_;
  double limit_bytes_;
  bool agreed_ = false;
  std::map<std::tuple<int, int, int>, Plan> plans_;
};

}  // namespace examples
