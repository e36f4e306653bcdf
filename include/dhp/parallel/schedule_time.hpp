// How long a schedule takes, and how much of it each stage idles: the lists are played with a given time for
// each kind of action. Messages take no time and edges are never full.
#pragma once

#include <dhp/parallel/schedule.hpp>

#include <cstddef>
#include <limits>

namespace dhp {

/// Time of each kind of action in one chunk, in any unit; a whole backward takes both gradients.
struct ActionCosts {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;

  [[nodiscard]] double of(Action::Kind kind) const {
    switch (kind) {
      case Action::Kind::forward: return forward;
      case Action::Kind::backward: return backward_input + backward_weight;
      case Action::Kind::backward_input: return backward_input;
      case Action::Kind::backward_weight: return backward_weight;
    }
    return 0;
  }
};

struct ScheduleTimes {
  std::vector<std::vector<double>> start;  ///< of each action, by stage and position
  double makespan = 0;             ///< from the start of the first action to the end of the last
  std::vector<double> idle_share;  ///< by stage, of the makespan
};

/// Each stage does its list in order, each action as early as what it receives is there. The lists are of all
/// stages, with or without backwards; an Error if they wait for each other for ever.
[[nodiscard]] inline ScheduleTimes simulate(const StageLists& lists,
                                            const ActionCosts& costs = {}) {
  constexpr double longest = std::numeric_limits<double>::max();
  for (const double cost : {costs.forward, costs.backward_input, costs.backward_weight})
    check(cost >= 0 && cost <= longest, "schedule: an action takes ", cost,
          "; finite and not negative");
  Wiring wiring{static_cast<int>(lists.size()), 1};
  constexpr int most_chunks = std::numeric_limits<int>::max();
  std::int64_t micro_batches = 0;
  std::int64_t forwards = 0;
  for (const auto& list : lists)
    for (const auto& action : list) {
      check(action.chunk >= 0 && action.chunk < most_chunks && action.micro_batch >= 0,
            "schedule: there is no ", action);
      wiring.chunks = std::max(wiring.chunks, action.chunk + 1);
      micro_batches = std::max(micro_batches, std::int64_t{action.micro_batch} + 1);
      forwards += action.kind == Action::Kind::forward ? 1 : 0;
    }
  // Divided, not multiplied: wild numbers in a list must not overflow, nor ask for wild memory.
  check(micro_batches == 0 ||
            (forwards % micro_batches == 0 && forwards / micro_batches == wiring.parts()),
        "schedule: ", forwards, " forwards are not ", micro_batches, " micro-batches in ",
        wiring.parts(), " parts of the model");

  const auto cells = static_cast<std::size_t>(wiring.parts() * micro_batches);
  constexpr double not_yet = -1;
  std::vector<double> activation_at(cells, not_yet);  // by part and micro-batch: when it is there
  std::vector<double> gradient_at(cells, not_yet);
  std::vector<double> clock(lists.size(), 0);
  std::vector<double> busy(lists.size(), 0);
  ScheduleTimes times;
  times.start.resize(lists.size());
  /// False if what the next action of the stage needs is not there yet.
  const auto advance = [&](std::size_t s) {
    const int stage = static_cast<int>(s);
    const auto& action = lists[s][times.start[s].size()];
    auto& done_at = action.kind == Action::Kind::forward ? activation_at : gradient_at;
    const auto cell = [&](std::int64_t part) {
      return static_cast<std::size_t>(part * micro_batches + action.micro_batch);
    };
    double ready = clock[s];
    if (const auto source = wiring.source(stage, action); source >= 0) {
      if (done_at[cell(source)] == not_yet) return false;
      ready = std::max(ready, done_at[cell(source)]);
    }
    times.start[s].push_back(ready);
    clock[s] = ready + costs.of(action.kind);
    busy[s] += costs.of(action.kind);
    if (action.kind != Action::Kind::backward_weight)
      done_at[cell(wiring.part(stage, action))] = clock[s];
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t s = 0; s < lists.size(); ++s)
      while (times.start[s].size() < lists[s].size() && advance(s)) moved = true;
  }

  for (std::size_t s = 0; s < lists.size(); ++s) {
    const auto at = times.start[s].size();
    if (at < lists[s].size())
      fail("schedule: stage ", s, ", position ", at, " (", lists[s][at], ") waits for ever");
    times.makespan = std::max(times.makespan, clock[s]);
  }
  for (const double time : busy)
    times.idle_share.push_back(times.makespan > 0 ? 1 - time / times.makespan : 0);
  return times;
}

}  // namespace dhp
