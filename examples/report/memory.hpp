// What a run will take of each rank's memory, before it is allocated; and the nearest layout where that is too much.
#pragma once

#include <dhp/train/memory_plan.hpp>

#include "../run/training.hpp"
#include "host_memory.hpp"

#include <map>
#include <string>
#include <vector>

namespace examples {

/// What the ranks of a layout may take.
struct MemoryLimit {
  std::size_t bytes = 0;  ///< of one rank
  std::string from;       ///< where that is from, for people
  bool of_host = false;   ///< it is this rank's share of what all ranks have together
};

class MemoryPlanner {
 public:
  /// same_shapes: of the batcher's micro-batches. equal_shares: replicas need as many micro-batches each. gpu: the run
  /// is one on GPUs.
  MemoryPlanner(const RunOptions& options, AnyBatcher batcher, DescribePlanned describe,
                bool same_shapes, bool equal_shares, bool gpu);

  /// One line for each stage; none where the layout cannot be run, which the run itself says better.
  [[nodiscard]] std::vector<std::string> lines(const MemoryLimit& limit) const;
  /// Throws Error with the nearest layout that fits if this one does not.
  void check_fits(const MemoryLimit& limit);
  /// Of each stage in another layout; none where that cannot be run.
  [[nodiscard]] std::vector<dhp::MemoryPlan> plan(const dhp::MeshShape& layout);
  [[nodiscard]] std::size_t need_of(const dhp::MemoryPlan& plan) const {
    return gpu_ ? plan.most_in_use : plan.most;  // a GPU's free blocks make room
  }

 private:
  struct Candidate;
  [[nodiscard]] const std::vector<dhp::HostBatch>& batches_of(std::int64_t micro_batch);
  [[nodiscard]] std::vector<dhp::MemoryPlan> plan(const RunOptions& options);
  [[nodiscard]] std::size_t most_of(const std::vector<dhp::MemoryPlan>& stages) const;
  [[nodiscard]] std::vector<Candidate> candidates() const;

  RunOptions options_;
  AnyBatcher batcher_;
  DescribePlanned describe_;
  bool same_shapes_;
  bool equal_shares_;
  bool gpu_;
  std::map<std::int64_t, std::vector<dhp::HostBatch>> batches_;
  std::vector<dhp::MemoryPlan> stages_;
};

}  // namespace examples
