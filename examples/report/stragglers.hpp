// Stragglers: ranks whose own work takes longer than the same work elsewhere; all ranks wait for them in every step.
#pragma once

#include <dhp/comm/mesh.hpp>

#include <algorithm>
#include <set>
#include <vector>

namespace examples {

/// The time of a rank's own work, which is computing and reading data, without waits for other ranks.
struct OwnWork {
  double seconds = 0;
  double micro_batches = 0;
  [[nodiscard]] double seconds_per_micro_batch() const { return seconds / micro_batches; }
};

class Stragglers {
 public:
  /// Number of steps in a period.
  static constexpr std::int64_t period = 50;

  /// work: each rank's work in a period. Returns the ranks that have become slow: in this period and the one before, a
  /// micro-batch took them more than 1.5 times the median of all replicas' ranks with the same place.
  [[nodiscard]] std::vector<int> found(const dhp::MeshShape& mesh,
                                       const std::vector<OwnWork>& work) {
    std::set<int> slow;
    for (int rank = 0; rank < mesh.size(); ++rank) {
      const auto& own = work[static_cast<std::size_t>(rank)];
      if (own.micro_batches > 0 && own.seconds_per_micro_batch() > 1.5 * usual_s(mesh, work, rank))
        slow.insert(rank);
    }
    std::vector<int> news;
    for (const auto rank : slow)
      if (slow_.contains(rank) && !reported_.contains(rank)) news.push_back(rank);
    for (const auto rank : news) reported_.insert(rank);
    std::erase_if(reported_, [&](int rank) { return !slow.contains(rank); });
    slow_ = std::move(slow);
    return news;
  }
  /// Returns the seconds for a micro-batch: the lower median over the replicas' ranks with this rank's place.
  [[nodiscard]] static double usual_s(const dhp::MeshShape& mesh, const std::vector<OwnWork>& work,
                                      int rank) {
    std::vector<double> peers;
    const int column = mesh.tensor * mesh.replicas();
    for (int replica = 0; replica < mesh.replicas(); ++replica) {
      const int peer = rank / column * column + replica * mesh.tensor + rank % mesh.tensor;
      const auto& its = work[static_cast<std::size_t>(peer)];
      if (its.micro_batches > 0) peers.push_back(its.seconds_per_micro_batch());
    }
    if (peers.empty()) return 0;
    std::sort(peers.begin(), peers.end());
    return peers[(peers.size() - 1) / 2];
  }

 private:
  std::set<int> slow_;  // slow ranks of the previous period
  std::set<int> reported_;
};

}  // namespace examples
