// Simulates a schedule with given costs of actions and messages. Draws a line per stage, a column per time slot.
//
//   stage 0 | F0 F1 .  .  B0--- F2 B1--- F3 B2--- .  B3--- | idle 20 %
//   stage 1 | .  F0 B0--- F1 B1--- F2 B2--- F3 B3--- .  .  | idle 20 %
#pragma once

#include <dhp/parallel/schedule.hpp>

#include <cmath>
#include <cstddef>
#include <limits>

namespace dhp {

/// Time of an action in one chunk, in any unit; a whole backward takes the sum of both gradients. Moves take no time,
/// because they overlap with passes.
struct ActionCosts {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;

  [[nodiscard]] double time_of(Action::Kind kind) const {
    switch (kind) {
      case Action::Kind::forward: return forward;
      case Action::Kind::backward: return backward_input + backward_weight;
      case Action::Kind::backward_input: return backward_input;
      case Action::Kind::backward_weight: return backward_weight;
      default: return 0;
    }
  }
};

struct ScheduleTimes {
  std::vector<std::vector<double>> start;  ///< start[stage][position] of each action
  std::vector<double> end;                 ///< end of the last action, one for each stage
  double makespan = 0;             ///< from the start of the first action to the end of the last
  std::vector<double> idle_share;  ///< idle share of the makespan, one for each stage
};

/// Each stage runs its actions in order, each as soon as its message has arrived. The lists may lack backwards. costs:
/// an entry for each part of the model (Wiring::part), or one for all. message: the time of a message between stages; a
/// stage sends one at a time. Throws on a deadlock.
[[nodiscard]] inline ScheduleTimes simulate(const StageLists& lists,
                                            const std::vector<ActionCosts>& costs,
                                            double message = 0) {
  constexpr double longest = std::numeric_limits<double>::max();
  for (const auto& of_part : costs)
    for (const double cost : {of_part.forward, of_part.backward_input, of_part.backward_weight})
      check(cost >= 0 && cost <= longest, "schedule: an action takes ", cost,
            "; finite and not negative");
  auto wiring = lists.wiring(1);
  constexpr int max_chunks = std::numeric_limits<int>::max();
  std::int64_t micro_batches = 0;
  std::int64_t forwards = 0;
  for (const auto& list : lists)
    for (const auto& action : list) {
      if (detail::is_move(action)) continue;
      check(action.chunk >= 0 && action.chunk < max_chunks && action.micro_batch >= 0,
            "schedule: there is no ", action);
      wiring.chunks = std::max(wiring.chunks, action.chunk + 1);
      micro_batches = std::max(micro_batches, std::int64_t{action.micro_batch} + 1);
      forwards += action.kind == Action::Kind::forward ? 1 : 0;
    }
  // Divides instead of multiplying: huge micro-batch numbers must not overflow, or allocate too much.
  check(micro_batches == 0 ||
            (forwards % micro_batches == 0 && forwards / micro_batches == wiring.parts()),
        "schedule: ", forwards, " forwards are not ", micro_batches, " micro-batches in ",
        wiring.parts(), " parts of the model");
  check(costs.size() == 1 || std::ssize(costs) == wiring.parts(), "schedule: ", costs.size(),
        " costs for ", wiring.parts(), " parts of the model");
  const auto cost_of = [&](int stage, const Action& action) {
    const auto part = costs.size() == 1 ? 0 : wiring.part(stage, action);
    return costs[detail::as_size(part)].time_of(action.kind);
  };

  const auto cells = detail::as_size(wiring.parts() * micro_batches);
  constexpr double not_yet = -1;
  std::vector<double> activation_at(cells, not_yet);  // arrival time, by part and micro-batch
  std::vector<double> gradient_at(cells, not_yet);
  std::vector<double> sent(lists.size(), 0);  // arrival time of the stage's last message
  std::vector<double> busy(lists.size(), 0);
  ScheduleTimes times;
  times.start.resize(lists.size());
  times.end.resize(lists.size(), 0);
  /// Returns false if the stage's next action waits for a message.
  const auto advance = [&](std::size_t s) {
    const int stage = static_cast<int>(s);
    const auto& action = lists[s][times.start[s].size()];
    if (detail::is_move(action)) {
      times.start[s].push_back(times.end[s]);
      return true;
    }
    auto& done_at = action.kind == Action::Kind::forward ? activation_at : gradient_at;
    const auto cell = [&](std::int64_t part) {
      return detail::as_size(part * micro_batches + action.micro_batch);
    };
    double ready = times.end[s];
    if (const auto source = wiring.source(stage, action); source >= 0) {
      if (done_at[cell(source)] == not_yet) return false;
      ready = std::max(ready, done_at[cell(source)]);
    }
    times.start[s].push_back(ready);
    times.end[s] = ready + cost_of(stage, action);
    busy[s] += cost_of(stage, action);
    if (action.kind == Action::Kind::backward_weight) return true;
    auto& done = done_at[cell(wiring.part(stage, action))] = times.end[s];
    if (const auto target = wiring.target(stage, action);
        target >= 0 && wiring.stage_of(target) != stage)
      done = sent[s] = std::max(sent[s], done) + message;
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
      fail("schedule: stage ", s, ", position ", at, " (", lists[s][at], ") waits forever");
    times.makespan = std::max(times.makespan, times.end[s]);
  }
  for (const double time : busy)
    times.idle_share.push_back(times.makespan > 0 ? 1 - time / times.makespan : 0);
  return times;
}

/// Simulates with equal costs in all parts.
[[nodiscard]] inline ScheduleTimes simulate(const StageLists& lists,
                                            const ActionCosts& costs = {}) {
  return simulate(lists, std::vector<ActionCosts>{costs});
}

/// Draws F for a forward, B for a backward or input gradient, W for a weight gradient, then the micro-batch and, with
/// several chunks, the chunk's letter. Dashes continue an action, a dot is an idle slot; moves are omitted. Costs are
/// whole numbers of slots from 1 to 100; at most 26 chunks.
[[nodiscard]] inline std::string draw(const StageLists& lists, const ActionCosts& costs = {}) {
  for (const double cost : {costs.forward, costs.backward_input, costs.backward_weight})
    check(cost >= 1 && cost <= 100 && cost == std::floor(cost), "draw: an action takes ", cost,
          " slots; a whole number from 1 to 100");
  const auto times = simulate(lists, costs);
  const auto end = lists.end_of_passes();
  check(end.chunk <= 26, "draw: ", end.chunk, " chunks; there are letters for 26");
  const auto label = [&](const Action& action) {
    const char* kind = action.kind == Action::Kind::forward           ? "F"
                       : action.kind == Action::Kind::backward_weight ? "W"
                                                                      : "B";
    const auto text = concat(kind, action.micro_batch);
    return end.chunk < 2 ? text : text + static_cast<char>('a' + action.chunk);
  };
  const auto slot_width =
      label({Action::Kind::forward, end.chunk - 1, end.micro_batch - 1}).size() + 1;
  const auto width_of = [&](double count) { return detail::as_size(count) * slot_width; };
  const auto padded = [](std::string text, std::size_t width, char with = ' ') {
    text.resize(std::max(text.size(), width), with);
    return text;
  };

  std::string out;
  const auto last_stage = std::to_string(lists.size() - 1).size();
  for (std::size_t stage = 0; stage < lists.size(); ++stage) {
    std::string line;
    const auto idle_until = [&](double slot) {
      while (line.size() < width_of(slot)) line += padded(".", slot_width);
    };
    for (std::size_t at = 0; at < lists[stage].size(); ++at) {
      const auto& action = lists[stage][at];
      if (detail::is_move(action)) continue;
      const double lasts = costs.time_of(action.kind);
      idle_until(times.start[stage][at]);
      const auto drawn = padded(label(action), width_of(lasts) - 1, lasts > 1 ? '-' : ' ');
      line += padded(drawn, width_of(lasts));
    }
    idle_until(times.makespan);
    out += concat("stage ", padded(std::to_string(stage), last_stage), " | ", line, "| idle ",
                  static_cast<int>(std::lround(100 * times.idle_share[stage])), " %\n");
  }
  return out;
}

}  // namespace dhp
