// Enumerates the layouts that a training may have, and finds the fastest ones.
#pragma once

#include "step_time.hpp"

#include <cmath>
#include <map>
#include <ranges>
#include <tuple>
#include <utility>
#include <vector>

namespace examples {

struct Choices {
  std::vector<int> ranks{};
  int data = 0, tensor = 0, pipeline = 0;  ///< sizes of these axes; 0: any size
  int context = 1;
  std::vector<std::int64_t> micro_batches{};
  std::vector<int> zero{0};
  std::vector<bool> recompute{false};
  std::vector<std::pair<dhp::AnySchedule, int>> schedules{
      {dhp::OneForwardOneBackward{}, 1}};  ///< schedule and chunks
  std::int64_t samples = 0;                ///< samples of a step
  bool equal_shares = false;               ///< all replicas need the same number of micro-batches

  /// Without replicas all stages of ZeRO are alike, and without a pipeline all schedules: only the first is a choice.
  [[nodiscard]] auto zero_on(const dhp::MeshShape& mesh) const {
    return zero | std::views::take(mesh.replicas() == 1 ? 1 : std::ssize(zero));
  }
  [[nodiscard]] auto schedules_on(const dhp::MeshShape& mesh) const {
    return schedules | std::views::take(mesh.pipeline == 1 ? 1 : std::ssize(schedules));
  }
  [[nodiscard]] bool keep_busy(const dhp::MeshShape& mesh, std::int64_t micro_batch) const {
    const auto count = samples / micro_batch;
    return count >= mesh.data && (!equal_shares || count % mesh.data == 0);
  }
  /// Returns choices of any axes with the same number of ranks; everything else is as in `layout`.
  [[nodiscard]] static Choices near(const Layout& layout, std::int64_t samples, bool equal_shares) {
    return {.ranks = {layout.mesh.size()},
            .context = layout.mesh.context,
            .micro_batches = {layout.micro_batch},
            .zero = {layout.zero},
            .recompute = {layout.recompute},
            .schedules = {{layout.schedule, layout.chunks}},
            .samples = samples,
            .equal_shares = equal_shares};
  }
};

/// Calls visit(mesh) for each mesh of these choices.
void each_mesh(const Choices& choices, const auto& visit) {
  const auto sizes = [](int ranks, int asked) {
    std::vector<int> found;
    for (int size = std::max(asked, 1); size <= (asked > 0 ? asked : ranks); ++size)
      if (ranks % size == 0) found.push_back(size);
    return found;
  };
  for (const int all : choices.ranks)
    for (const int context : sizes(all, choices.context))
      for (const int tensor : sizes(all / context, choices.tensor))
        for (const int pipeline : sizes(all / context / tensor, choices.pipeline)) {
          const int data = all / context / tensor / pipeline;
          if (choices.data == 0 || choices.data == data)
            visit(dhp::MeshShape{data, tensor, pipeline, context});
        }
}

[[nodiscard]] inline std::vector<Layout> layouts_of(const Choices& choices) {
  std::vector<Layout> found;
  each_mesh(choices, [&](const dhp::MeshShape& mesh) {
    for (const int zero : choices.zero_on(mesh))
      for (const auto micro_batch : choices.micro_batches)
        if (choices.keep_busy(mesh, micro_batch))
          for (const auto& [schedule, chunks] : choices.schedules_on(mesh))
            for (const bool recompute : choices.recompute)
              found.push_back({mesh, schedule, chunks, micro_batch, zero, recompute});
  });
  return found;
}

using Timed = std::pair<StepTime, Layout>;

/// Numbers of layouts.
struct Searched {
  std::size_t all = 0, possible = 0;  ///< possible: those that were timed and can run the model
};

/// Calls visit(layout) for the layouts that may fit into memory, the fastest first, until it returns false. Layouts
/// that differ only in schedule and ZeRO are a group with one lower bound of their times. Groups are timed in the order
/// of these bounds, and only while the next one may hold a faster layout than those that are timed.
Searched search(StepModel& model, const Choices& choices, const auto& visit) {
  std::vector<std::pair<double, Layout>> groups;
  Searched result;
  each_mesh(choices, [&](const dhp::MeshShape& mesh) {
    for (const auto micro_batch : choices.micro_batches)
      for (const bool recompute : choices.recompute) {
        if (!choices.keep_busy(mesh, micro_batch)) continue;
        result.all += choices.zero_on(mesh).size() * choices.schedules_on(mesh).size();
        Layout layout{.mesh = mesh, .micro_batch = micro_batch, .recompute = recompute};
        if (const auto bound = model.at_least(layout)) groups.emplace_back(*bound, layout);
      }
  });
  std::ranges::stable_sort(groups, {}, &std::pair<double, Layout>::first);
  // Equally fast layouts that need equally much memory are in the order of layouts_of().
  std::multimap<std::tuple<double, double, int, int, int, std::int64_t>, Timed> timed;
  for (auto group = groups.begin();;) {
    if (group != groups.end() &&
        (timed.empty() || group->first <= std::get<0>(timed.begin()->first))) {
      auto& layout = group++->second;
      for (const int zero : choices.zero_on(layout.mesh))
        for (const auto& [schedule, chunks] : choices.schedules_on(layout.mesh)) {
          layout.schedule = schedule, layout.chunks = chunks, layout.zero = zero;
          const auto time = model(layout);
          if (!time) continue;
          ++result.possible;
          if (time->memory_bytes <= model.cluster().memory_bytes)
            timed.emplace(std::tuple(time->total(), time->memory_bytes, layout.mesh.tensor,
                                     layout.mesh.pipeline, zero, layout.micro_batch),
                          Timed(*time, layout));
        }
    } else if (timed.empty() || !visit(timed.extract(timed.begin()).mapped())) {
      return result;
    }
  }
}

/// Says in a phrase why a layout is slower than the best one.
[[nodiscard]] inline std::string why_slower(const StepTime& best, const StepTime& other) {
  auto more = other.parts();
  for (std::size_t part = 0; part < more.size(); ++part)
    more[part].second -= best.parts()[part].second;
  const auto& [name, seconds] =
      *std::ranges::max_element(more, {}, [](const auto& part) { return part.second; });
  if (seconds <= 1e-9 * best.total())
    return other.memory_bytes > best.memory_bytes ? "as fast, more memory" : "as fast";
  return dhp::concat(std::round(1e5 * seconds) / 100, " ms more: ", name);
}

}  // namespace examples
