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

namespace examples {

class LayoutPlanner {
 public:
  /// Keeps a reference to the setup. limit_bytes: this rank's memory limit, before it allocates any.
  LayoutPlanner(const TrainingSetup& setup, std::size_t limit_bytes)
      : setup_(setup),
        planner_(setup),
        model_(planner_.step_model(cluster_of(setup.options, on_gpu))),
        limit_bytes_(static_cast<double>(limit_bytes)) {}

  /// Sets one limit for all ranks: the smallest of the ranks that the job started with. Collective.
  void agree_on_limit(Dev& dev, dhp::Comm<Dev>& world) {
    const auto gathered = dhp::gather(dev, world, {agreed_ ? 1.0 : 0.0, limit_bytes_});
    bool known = false;
    for (std::size_t at = 0; at < gathered.size(); at += 2) known = known || gathered[at] > 0;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t at = 0; at < gathered.size(); at += 2)
      if (!known || gathered[at] > 0) least = std::min(least, gathered[at + 1]);
    limit_bytes_ = least;
    agreed_ = true;
  }

  /// Returns seconds, or nullopt if the layout cannot run: the model cannot be cut this way, a replica has nothing to
  /// do, or a rank's memory is too small for a step, or for the state of two layouts, which a change needs.
  [[nodiscard]] std::optional<double> step_time(const dhp::MeshShape& layout) {
    const auto [known, fresh] =
        plans_.try_emplace({layout.data, layout.tensor, layout.pipeline}, Plan{});
    auto& plan = known->second;
    if (fresh && gives_work_to_all(layout)) plan = planned(layout);
    if (!plan.possible || plan.bytes > limit_bytes_) return {};
    return plan.time;
  }

 private:
  struct Plan {
    bool possible = false;
    double bytes = 0;
    double time = 0;
  };

  [[nodiscard]] bool gives_work_to_all(const dhp::MeshShape& layout) const {
    const auto& options = setup_.options;
    const dhp::Batching epoch(options.resident() ? options.global_batch : setup_.train.size(),
                              options.global_batch, options.micro_batch);
    const auto first = epoch.plan(1).micro_batches();
    const auto last = epoch.plan(epoch.steps_per_epoch()).micro_batches();
    const bool equal = first % layout.data == 0 && last % layout.data == 0;
    return layout.data <= first && (equal || !setup_.waits_for_replicas);
  }
  [[nodiscard]] Plan planned(const dhp::MeshShape& layout) {
    auto as = planner_.layout();
    as.mesh = layout;
    const auto time = model_(as);
    if (!time) return {};
    Plan plan{.time = time->total()};
    for (const auto& stage : planner_.plan(as)) {
      plan.possible = true;
      plan.bytes = std::max(
          {plan.bytes, static_cast<double>(stage.most), 2 * static_cast<double>(stage.at_rest)});
    }
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
