// A run's need of each rank's memory, before it is allocated; and the nearest layout if that is too much.
#pragma once

#include <dhp/train/memory_plan.hpp>

#include "../plan/search.hpp"
#include "../plan/step_time.hpp"
#include "../run/training.hpp"
#include "host_memory.hpp"

#include <map>
#include <string>
#include <vector>

namespace examples {

/// Memory that ranks may take.
struct MemoryLimit {
  std::size_t bytes = 0;  ///< of one rank
  std::string from;       ///< what sets the limit, for people
  bool of_host = false;   ///< it is this rank's share of the host's memory
};

[[nodiscard]] Layout layout_of(const RunOptions& options);
/// Changes the options to that.
void choose(RunOptions& options, const Layout& layout);
/// Takes --cluster, or a usual one.
[[nodiscard]] Cluster cluster_of(const RunOptions& options, bool gpu);

class MemoryPlanner {
 public:
  /// same_shapes: of the batcher's micro-batches. equal_shares: replicas need as many micro-batches each.
  MemoryPlanner(const RunOptions& options, AnyBatcher batcher, DescribePlanned describe,
                bool same_shapes, bool equal_shares, RanksAre ranks);
  explicit MemoryPlanner(const TrainingSetup& setup)
      : MemoryPlanner(setup.options, setup.train, setup.plan_model, setup.same_shapes,
                      setup.waits_for_replicas, ranks_are(setup.options)) {}

  /// One line for each stage; none where the layout cannot be run, which the run itself says better.
  [[nodiscard]] std::vector<std::string> lines(const MemoryLimit& limit);
  /// Throws Error with the nearest layout that fits if this one does not.
  void check_fits(const MemoryLimit& limit);
  /// Plans each stage of another layout; none if that cannot be run. runs: micro-batches of a replica, 0: all.
  [[nodiscard]] std::vector<dhp::MemoryPlan> plan(const Layout& layout, std::int64_t runs = 0);
  /// Bytes of the rank that takes most; 0: the layout cannot be run.
  [[nodiscard]] std::size_t need(const Layout& layout, std::int64_t runs = 0);
  [[nodiscard]] Layout layout() const { return layout_of(options_); }
  /// How long steps of `samples` samples take on this cluster; 0: as the options say. It refers to this planner.
  [[nodiscard]] StepModel step_model(Cluster cluster, std::int64_t samples = 0);

 private:
  /// Samples of a step.
  [[nodiscard]] std::int64_t samples() const;
  [[nodiscard]] const std::vector<dhp::HostBatch>& batches_of(std::int64_t micro_batch);
  using Planned = dhp::PlannedRun<dhp::AllTrainingOptions>;
  /// The result refers to options.
  [[nodiscard]] Planned planned(const RunOptions& options, std::int64_t runs = 0);
  [[nodiscard]] const std::vector<dhp::MemoryPlan>& stages();
  using Counted = std::shared_ptr<const ModelWork>;
  /// The work of one rank on the data and pipeline axes; null if the model cannot be cut so.
  [[nodiscard]] Counted work(const Layout& layout);
  [[nodiscard]] std::vector<std::pair<double, Layout>> nearest() const;

  RunOptions options_;
  AnyBatcher batcher_;
  DescribePlanned describe_;
  bool same_shapes_;
  bool equal_shares_;
  RanksAre ranks_;
  std::map<std::int64_t, std::vector<dhp::HostBatch>> batches_;
  std::map<std::tuple<int, int, std::int64_t, bool>, Counted> works_;
  std::optional<std::vector<dhp::MemoryPlan>> stages_;
};

}  // namespace examples
