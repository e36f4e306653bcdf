// A schedule as text: one line per stage, time from left to right, one column per slot.
//
//   stage 0 | F0 F1 .  .  B0--- F2 B1--- F3 B2--- .  B3--- | idle 20 %
//   stage 1 | .  F0 B0--- F1 B1--- F2 B2--- F3 B3--- .  .  | idle 20 %
#pragma once

#include <dhp/parallel/schedule_time.hpp>

#include <cmath>
#include <string>

namespace dhp {

/// F forward, B backward (or of the input alone), W weight gradient, with the number of the micro-batch and,
/// where a stage has several chunks, a letter for the chunk; a line of - while the action
/// lasts; a dot is an idle slot. Costs are whole numbers of slots, 1 to 100; several chunks: at most 26.
[[nodiscard]] inline std::string draw(const StageLists& lists, const ActionCosts& costs = {}) {
  for (const double cost : {costs.forward, costs.backward_input, costs.backward_weight})
    check(cost >= 1 && cost <= 100 && cost == std::floor(cost), "draw: an action takes ", cost,
          " slots; a whole number from 1 to 100");
  const auto times = simulate(lists, costs);
  int chunks = 1;
  int micro_batches = 1;
  for (const auto& list : lists)
    for (const auto& action : list) {
      chunks = std::max(chunks, action.chunk + 1);
      micro_batches = std::max(micro_batches, action.micro_batch + 1);
    }
  check(chunks <= 26, "draw: ", chunks, " chunks; there are letters for 26");
  const auto label = [&](const Action& action) {
    const char* kind = action.kind == Action::Kind::forward           ? "F"
                       : action.kind == Action::Kind::backward_weight ? "W"
                                                                      : "B";
    const auto text = concat(kind, action.micro_batch);
    return chunks == 1 ? text : text + static_cast<char>('a' + action.chunk);
  };
  const auto slot_width = label({Action::Kind::forward, chunks - 1, micro_batches - 1}).size() + 1;
  const auto width_of = [&](double slots) { return static_cast<std::size_t>(slots) * slot_width; };
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
      const double slots = costs.of(action.kind);
      idle_until(times.start[stage][at]);
      const auto drawn = padded(label(action), width_of(slots) - 1, slots > 1 ? '-' : ' ');
      line += padded(drawn, width_of(slots));
    }
    idle_until(times.makespan);
    out += concat("stage ", padded(std::to_string(stage), last_stage), " | ", line, "| idle ",
                  static_cast<int>(std::lround(100 * times.idle_share[stage])), " %\n");
  }
  return out;
}

}  // namespace dhp
