// next_layout chooses the mesh of an elastic job's next generation. It is a pure function of the number of ranks, the
// previous layout and the job's rules, so all ranks get the same mesh.
#pragma once

#include <dhp/comm/mesh.hpp>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace dhp {

/// The layouts that an elastic job may take.
struct LayoutRules {
  int min_replicas = 1;  ///< with fewer replicas the job waits for ranks
  int max_replicas = std::numeric_limits<int>::max();
  /// Estimates a layout's time per step, in any unit; returns nullopt if the model cannot be trained in it. Null: only
  /// the number of replicas may change. All ranks must give the same answers.
  std::function<std::optional<double>(const MeshShape&)> step_time{};
  std::function<bool(const MeshShape&)> allows{};  ///< further rules; null: none
};

/// Returns the fastest of the layouts that use the most ranks; nullopt if none fits. Layouts within 1 % of the fastest
/// tie: the least change of the tensor and pipeline axes wins, then the smaller tensor axis.
[[nodiscard]] inline std::optional<MeshShape> next_layout(int ranks, const MeshShape& before,
                                                          const LayoutRules& rules) {
  const auto time_of = [&](const MeshShape& layout) -> std::optional<double> {
    if (layout.data < rules.min_replicas || layout.data > rules.max_replicas) return {};
    if (rules.allows && !rules.allows(layout)) return {};
    if (rules.step_time) return rules.step_time(layout);
    if (layout.tensor != before.tensor || layout.pipeline != before.pipeline) return {};
    return 0;
  };
  const auto order_of = [&](const MeshShape& layout) {
    const int change = std::abs(layout.tensor - before.tensor);
    return std::tuple(change + std::abs(layout.pipeline - before.pipeline), layout.tensor);
  };
  constexpr double equal = 1.01;
  for (int used = ranks; used > 0; --used) {
    std::vector<std::pair<double, MeshShape>> found;
    for (int tensor = 1; tensor <= used; ++tensor)
      for (int pipeline = 1; pipeline <= used / tensor; ++pipeline) {
        const MeshShape layout{used / (tensor * pipeline), tensor, pipeline};
        if (layout.size() != used) continue;
        if (const auto time = time_of(layout)) found.emplace_back(*time, layout);
      }
    if (found.empty()) continue;
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [time, layout] : found) least = std::min(least, time);
    std::erase_if(found, [&](const auto& each) { return each.first > equal * least; });
    return std::min_element(found.begin(), found.end(),
                            [&](const auto& a, const auto& b) {
                              return order_of(a.second) < order_of(b.second);
                            })
        ->second;
  }
  return {};
}

}  // namespace dhp
