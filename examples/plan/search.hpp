// Enumerates the layouts that a training may have, and finds the fastest ones.
#pragma once

#include "step_time.hpp"

#include <cmath>
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
  bool powers_of_two = false;              ///< only axes that are powers of two

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

[[nodiscard]] inline std::vector<Layout> layouts_of(const Choices& choices) {
  std::vector<Layout> found;
  const auto may_be = [&](int axis, int asked) {
    const bool power = (axis & (axis - 1)) == 0;
    return asked > 0 ? axis == asked : power || !choices.powers_of_two;
  };
  for (const int ranks : choices.ranks)
    for (int tensor = 1; tensor <= ranks; ++tensor)
      for (int pipeline = 1; pipeline <= ranks / tensor; ++pipeline) {
        const int others = tensor * pipeline * choices.context;
        if (ranks % others != 0 || !may_be(tensor, choices.tensor) ||
            !may_be(pipeline, choices.pipeline))
          continue;
        const dhp::MeshShape mesh{ranks / others, tensor, pipeline, choices.context};
        if (choices.data > 0 && mesh.data != choices.data) continue;
        for (const int zero : choices.zero)
          for (const auto micro_batch : choices.micro_batches) {
            const auto count = choices.samples / micro_batch;
            if ((zero > choices.zero.front() && mesh.replicas() == 1) || count < mesh.data ||
                (choices.equal_shares && count % mesh.data != 0))
              continue;
            for (const auto& [schedule, chunks] : choices.schedules)
              for (const bool recompute : choices.recompute)
                if (pipeline > 1 || &schedule == &choices.schedules.front().first)
                  found.push_back({mesh, schedule, chunks, micro_batch, zero, recompute});
          }
      }
  return found;
}

using Timed = std::pair<StepTime, Layout>;

struct Fastest {
  std::vector<Timed> layouts{};         ///< the best first
  std::size_t tried = 0, possible = 0;  ///< layouts tried, and layouts that can run the model
};

/// Returns the fastest layouts whose estimated memory fits, at most `most`. If there are more than 100,000 layouts, it
/// tries only axes that are powers of two.
[[nodiscard]] inline Fastest fastest(StepModel& model, Choices choices, std::size_t most) {
  auto layouts = layouts_of(choices);
  if (layouts.size() > 100'000) choices.powers_of_two = true, layouts = layouts_of(choices);
  Fastest found{.tried = layouts.size()};
  for (const auto& layout : layouts) {
    const auto time = model(layout);
    if (!time) continue;
    ++found.possible;
    if (time->memory_bytes <= model.cluster().memory_bytes)
      found.layouts.emplace_back(*time, layout);
  }
  std::ranges::stable_sort(found.layouts, {}, [](const Timed& one) {
    return std::pair(one.first.total(), one.first.memory_bytes);
  });
  if (found.layouts.size() > most) found.layouts.resize(most);
  return found;
}

/// Says in a phrase why a layout is slower than the best one.
[[nodiscard]] inline std::string why_slower(const StepTime& best, const StepTime& other) {
  const auto of_best = best.seconds(), of_other = other.seconds();
  std::size_t worst = 0;
  for (std::size_t at = 1; at < of_best.size(); ++at)
    if (of_other[at] - of_best[at] > of_other[worst] - of_best[worst]) worst = at;
  const double more = of_other[worst] - of_best[worst];
  if (more <= 1e-9 * best.total())
    return other.memory_bytes > best.memory_bytes ? "as fast, more memory" : "as fast";
  return dhp::concat(std::round(1e5 * more) / 100, " ms more: ", StepTime::parts.at(worst));
}

}  // namespace examples
