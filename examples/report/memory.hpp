// Plans a run's memory on each rank before it is allocated. If it is too much, finds the nearest layout that fits.
#pragma once

#include <dhp/train/memory_plan.hpp>

#include "../plan/search.hpp"
#include "../plan/step_time.hpp"
#include "../run/training.hpp"
#include "host_memory.hpp"

#include <limits>
#include <map>
#include <string>
#include <vector>

namespace examples {

/// The memory that ranks may use.
struct MemoryLimit {
  std::size_t bytes = 0;  ///< limit for one rank
  std::string from;       ///< source of the limit, for messages
  bool of_host = false;   ///< the limit is this rank's share of the host's memory
};

[[nodiscard]] Layout layout_of(const RunOptions& options);
/// Changes the options to this layout.
void choose(RunOptions& options, const Layout& layout);
/// Returns the cluster of --cluster, or a typical one.
[[nodiscard]] Cluster cluster_of(const RunOptions& options, bool gpu);

class MemoryPlanner {
 public:
  explicit MemoryPlanner(PlannedTraining of) : of_(std::move(of)) {}

  /// Returns one line for each stage; none if the layout cannot run, since the run's own error is clearer.
  [[nodiscard]] std::vector<std::string> lines(const MemoryLimit& limit);
  /// Throws Error with the nearest layout that fits if this one does not.
  void check_fits(const MemoryLimit& limit);
  /// Plans each stage of another layout; empty if it cannot run. runs: micro-batches of a replica, 0: all. Ends after a
  /// stage that takes more than `limit` bytes.
  [[nodiscard]] std::vector<dhp::MemoryPlan> plan(
      const Layout& layout, std::int64_t runs = 0,
      double limit = std::numeric_limits<double>::infinity());
  /// Returns the bytes of the rank that needs most; 0 if the layout cannot run.
  [[nodiscard]] std::size_t need(const Layout& layout, std::int64_t runs = 0);
  /// Returns why some layout of this model cannot run; empty if all can.
  [[nodiscard]] const std::string& why_not(const StepModel& model) const {
    return model.why_not().empty() ? why_not_ : model.why_not();
  }
  /// Plans for steps of so many samples from now on.
  void set_global_batch(std::int64_t samples) { of_.options.global_batch = samples; }
  [[nodiscard]] Layout layout() const { return layout_of(of_.options); }
  /// Returns a model of the time of a step of `samples` samples (0: as in the options). It refers to this planner.
  [[nodiscard]] StepModel step_model(Cluster cluster, std::int64_t samples = 0);

 private:
  /// Returns the samples of a step.
  [[nodiscard]] std::int64_t samples() const;
  [[nodiscard]] const std::vector<dhp::HostBatch>& batches_of(std::int64_t micro_batch);
  using Planned = dhp::PlannedRun<dhp::AllTrainingOptions>;
  /// The result refers to options.
  [[nodiscard]] Planned planned(const RunOptions& options, std::int64_t runs = 0);
  [[nodiscard]] const std::vector<dhp::MemoryPlan>& stages();
  using Counted = std::shared_ptr<const ModelWork>;
  /// Returns the work of a rank with one replica and one stage; null if the model cannot be cut this way.
  [[nodiscard]] Counted work(const Layout& layout);
  [[nodiscard]] std::vector<std::pair<double, Layout>> nearest() const;

  PlannedTraining of_;
  std::map<std::int64_t, std::vector<dhp::HostBatch>> batches_;
  std::map<std::tuple<int, int, std::int64_t, bool>, Counted> works_;
  std::string why_not_{};
  std::optional<std::vector<dhp::MemoryPlan>> stages_;
};

}  // namespace examples
