// Schedules as CSV, in the form that PyTorch reads and writes (torch.distributed.pipelining): a line per stage, whose
// cells are its actions in order. "1F0" is the forward pass of micro-batch 0 in part 1 of the model; B is the whole
// backward pass, I that of the input and W that of the weights. Empty cells stand for idle time.
#pragma once

#include <dhp/parallel/schedule.hpp>

#include <charconv>

namespace dhp {

[[nodiscard]] inline std::string schedule_to_csv(const StageLists& lists) {
  constexpr std::string_view letters = "FBIW";
  const auto stages = static_cast<int>(lists.size());
  std::string text;
  for (int stage = 0; stage < stages; ++stage) {
    const auto& list = lists[static_cast<std::size_t>(stage)];
    for (const auto& action : list)
      text += concat(&action == &list.front() ? "" : ",", action.chunk * stages + stage,
                     std::string(1, letters[static_cast<std::size_t>(action.kind)]),
                     action.micro_batch);
    text += '\n';
  }
  return text;
}

/// Throws with line and cell where that is no action of the line's stage. What the schedule as a whole has to hold is
/// proved before it runs (schedule_check.hpp).
[[nodiscard]] inline StageLists schedule_from_csv(std::string_view text) {
  std::vector<std::vector<std::string_view>> lines;
  const auto next = [](std::string_view& rest, char end) {
    const auto found = rest.substr(0, rest.find(end));
    rest.remove_prefix(std::min(found.size() + 1, rest.size()));
    return found;
  };
  while (!text.empty()) {
    auto line = next(text, '\n');
    if (line.ends_with('\r')) line.remove_suffix(1);
    auto& cells = lines.emplace_back();
    while (!line.empty()) cells.push_back(next(line, ','));
  }
  const auto stages = static_cast<int>(lines.size());
  StageLists lists(lines.size());
  for (std::size_t stage = 0; stage < lines.size(); ++stage)
    for (std::size_t at = 0; at < lines[stage].size(); ++at) {
      auto cell = lines[stage][at];
      const auto is_space = [](char letter) { return letter == ' ' || letter == '\t'; };
      while (!cell.empty() && is_space(cell.front())) cell.remove_prefix(1);
      while (!cell.empty() && is_space(cell.back())) cell.remove_suffix(1);
      if (cell.empty()) continue;
      int part = -1, micro_batch = -1;
      const auto* const end = cell.data() + cell.size();
      const auto* letter = std::from_chars(cell.data(), end, part).ptr;
      const auto kind =
          letter == end ? std::string_view::npos : std::string_view("FBIW").find(*letter);
      const bool whole = kind != std::string_view::npos && part >= 0 && micro_batch < 0 &&
                         std::from_chars(letter + 1, end, micro_batch).ptr == end &&
                         micro_batch >= 0;
      check(
          whole, "line ", stage + 1, ", cell ", at + 1, ": \"", std::string(cell),
          "\" is no action; give the part of the model, one of F, B, I and W, and the micro-batch, "
          "such as 1F0");
      check(part % stages == static_cast<int>(stage), "line ", stage + 1, ", cell ", at + 1, ": ",
            std::string(cell), " is of part ", part, ", which stage ", part % stages, " of ",
            stages, " holds, and belongs into line ", part % stages + 1);
      lists[stage].push_back({static_cast<Action::Kind>(kind), part / stages, micro_batch});
    }
  return lists;
}

/// A schedule of these lists. Steps with fewer micro-batches leave out the others; a step with more is refused.
[[nodiscard]] inline AnySchedule fixed_schedule(std::string name, StageLists lists) {
  int most = 0;
  for (const auto& list : lists)
    for (const auto& action : list) most = std::max(most, action.micro_batch + 1);
  auto function = [name, lists = std::move(lists), most](int stage, int stages, int micro_batches,
                                                         int) {
    check(static_cast<std::size_t>(stages) == lists.size(), "schedule ", name, " is for ",
          lists.size(), " stages, and the pipeline axis has ", stages);
    check(micro_batches <= most, "schedule ", name, " is for ", most,
          " micro-batches, and a step has ", micro_batches,
          " on a replica; choose a larger micro-batch, or another schedule");
    auto list = lists[static_cast<std::size_t>(stage)];
    std::erase_if(list, [&](const Action& action) { return action.micro_batch >= micro_batches; });
    return list;
  };
  return {std::move(name), std::move(function)};
}

}  // namespace dhp
