// A schedule as text: one line per stage, time from left to right.
#pragma once

#include <dhp/parallel/schedule_check.hpp>

#include <cmath>
#include <string>

namespace dhp {

/// F forward, B backward (or input gradient), W weight gradient, each with the number of its micro-batch;
/// with several chunks these are told apart by F and f, B and b. One cell per unit of time; a dot is an
/// idle one, ~ the rest of an action that takes longer.
[[nodiscard]] inline std::string draw_schedule(const StageLists& lists, int chunks = 1,
                                               const ActionCosts& costs = {}) {
  const auto times = time_schedule(lists, chunks, costs);
  std::size_t width = 2;  // of a cell
  for (const auto& list : lists)
    for (const auto& action : list)
      width = std::max(width, 1 + std::to_string(action.micro_batch).size());
  const auto cell = [&](std::string text) {
    text.resize(width + 1, ' ');
    return text;
  };
  std::string out;
  for (std::size_t stage = 0; stage < lists.size(); ++stage) {
    std::vector<std::string> cells(static_cast<std::size_t>(std::ceil(times.total)), ".");
    for (std::size_t at = 0; at < lists[stage].size(); ++at) {
      const auto& action = lists[stage][at];
      const char upper[] = {'F', 'B', 'B', 'W'};
      const char lower[] = {'f', 'b', 'b', 'w'};
      const auto kind = static_cast<std::size_t>(action.kind);
      const auto begin = static_cast<std::size_t>(times.start[stage][at]);
      const auto length = static_cast<std::size_t>(costs.of(action.kind));
      for (std::size_t slot = begin; slot < begin + length && slot < cells.size(); ++slot)
        cells[slot] = "~";
      if (begin < cells.size())
        cells[begin] = concat(action.chunk % 2 == 0 ? upper[kind] : lower[kind], action.micro_batch);
    }
    out += concat("stage ", stage, " | ");
    for (auto& text : cells) out += cell(std::move(text));
    while (out.back() == ' ') out.pop_back();
    out += '\n';
  }
  return out;
}

}  // namespace dhp
