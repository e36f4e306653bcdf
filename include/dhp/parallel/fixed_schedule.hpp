// FixedSchedule: a schedule given as lists, or as CSV in PyTorch's format (torch.distributed.pipelining): a line per
// stage, a cell per action. "1F0" is the forward of micro-batch 0 in part 1 of the model; B is a whole backward, I an
// input gradient, W a weight gradient. 1UNSHARD, 1RESHARD and 1REDUCE_GRAD are moves of part 1. Empty cells are idle
// time. Older PyTorch files write B for an input gradient, too, if the line has a W for it.
#pragma once

#include <dhp/parallel/schedule.hpp>

#include <array>
#include <charconv>
#include <optional>

namespace dhp {

/// A step with fewer micro-batches omits the actions of the others; a step with more is an error. actions() returns no
/// moves, because a pipeline inserts those of its own buckets. schedule_check.hpp proves the whole schedule before it
/// runs.
struct FixedSchedule {
  std::string name;
  StageLists lists;
  int needed_chunks = std::max(1, lists.end_of_passes().chunk);
  bool v_shaped = lists.v_shaped;

  [[nodiscard]] std::vector<Action> actions(int stage, int stages, int micro_batches, int) const {
    check(detail::as_size(stages) == lists.size(), "schedule ", name, " is for ",
          detail::pluralize(lists.size(), "stage"), ", and the pipeline axis has ", stages,
          "; choose a pipeline axis of ", lists.size(), ", or another schedule");
    const int most = lists.end_of_passes().micro_batch;
    check(micro_batches <= most, "schedule ", name, " is for ",
          detail::pluralize(most, "micro-batch"), ", and a step has ", micro_batches,
          " on a replica; choose a larger micro-batch, or another schedule");
    auto list = lists.at(detail::as_size(stage));
    std::erase_if(list, [&](const Action& action) {
      return detail::is_move(action) || action.micro_batch >= micro_batches;
    });
    return list;
  }

  [[nodiscard]] static std::string to_csv(const StageLists& lists) {
    const auto wiring = lists.wiring(1);
    std::string text;
    for (int stage = 0; stage < wiring.stages; ++stage) {
      const char* before = "";
      for (const auto& action : lists[detail::as_size(stage)])
        text += concat(std::exchange(before, ","), wiring.part(stage, action),
                       words[detail::as_size(action.kind)],
                       detail::is_move(action) ? "" : std::to_string(action.micro_batch));
      text += '\n';
    }
    return text;
  }
  /// Throws, naming line and cell, if a cell is not an action of the line's stage. The first action of chunk 1 decides
  /// whether the schedule is v-shaped.
  [[nodiscard]] static FixedSchedule from_csv(std::string name, std::string_view text) {
    constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";  // spreadsheets write one
    if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
    std::vector<std::string_view> lines;
    while (!text.empty()) lines.push_back(cut(text, '\n'));
    while (!lines.empty() && trimmed(lines.back()).empty()) lines.pop_back();
    const auto stages = static_cast<int>(lines.size());
    StageLists lists(lines.size());
    auto wiring = lists.wiring(1);
    bool known = false;
    for (int stage = 0; stage < stages; ++stage) {
      auto line = lines[detail::as_size(stage)];
      for (int at = 1; !line.empty(); ++at) {
        const auto cell = trimmed(cut(line, ','));
        if (cell.empty()) continue;
        const auto where = concat(name, ", line ", stage + 1, ", cell ", at, ": ");
        auto action = parse(cell);
        check(action.has_value(), where, "\"", cell.substr(0, 40), cell.size() > 40 ? "..." : "",
              "\" is no action; give the part of the model, one of F, B, I and W, and the "
              "micro-batch, such as 1F0, or a move, such as 1UNSHARD");
        auto& [part, result] = *action;
        result.chunk = wiring.chunk_of(part);
        if (!std::exchange(known, known || result.chunk == 1) && result.chunk == 1) {
          const detail::Wiring v{stages, 1, true};
          wiring.v_shaped = wiring.stage_of(part) != stage && v.stage_of(part) == stage;
        }
        const int owner = wiring.stage_of(part);
        check(owner == stage, where, cell, " is of a part that stage ", owner, " of ", stages,
              " holds, and belongs into line ", owner + 1);
        lists[detail::as_size(stage)].push_back(result);
      }
      leave_weights(lists[detail::as_size(stage)]);
    }
    lists.v_shaped = wiring.v_shaped;
    return {std::move(name), std::move(lists)};
  }

 private:
  /// Turns a backward into a backward_input if the list has its backward_weight.
  static void leave_weights(std::vector<Action>& list) {
    using Kind = Action::Kind;
    for (auto& action : list) {
      const Action weights{Kind::backward_weight, action.chunk, action.micro_batch};
      if (action.kind == Kind::backward && std::count(list.begin(), list.end(), weights) > 0)
        action.kind = Kind::backward_input;
    }
  }
  /// Indexed by Action::Kind.
  static constexpr std::array<std::string_view, 7> words{"F",       "B",       "I",          "W",
                                                         "UNSHARD", "RESHARD", "REDUCE_GRAD"};

  /// Removes and returns the text before `end`; removes `end` too.
  [[nodiscard]] static std::string_view cut(std::string_view& text, char end) {
    const auto found = text.substr(0, text.find(end));
    text.remove_prefix(std::min(found.size() + 1, text.size()));
    return found;
  }
  [[nodiscard]] static std::string_view trimmed(std::string_view text) {
    constexpr const char* spaces = " \t\r";
    const auto first = std::min(text.find_first_not_of(spaces), text.size());
    return text.substr(first, text.find_last_not_of(spaces) + 1 - first);
  }
  /// Returns the part, and the action with chunk 0: the caller derives the chunk from the part.
  [[nodiscard]] static std::optional<std::pair<int, Action>> parse(std::string_view cell) {
    Action action;
    int part = 0;
    const char* const end = cell.data() + cell.size();
    const auto [word, no_part] = std::from_chars(cell.data(), end, part);
    const char* const number =
        std::find_if(word, end, [](char c) { return c != '_' && (c < 'A' || c > 'Z'); });
    const auto kind = std::find(words.begin(), words.end(), std::string_view(word, number));
    if (no_part != std::errc() || part < 0 || kind == words.end()) return std::nullopt;
    action.kind = static_cast<Action::Kind>(kind - words.begin());
    if (detail::is_move(action) && number == end) return std::pair{part, action};
    const auto [last, no_number] = std::from_chars(number, end, action.micro_batch);
    if (no_number != std::errc() || last != end || action.micro_batch < 0 ||
        detail::is_move(action))
      return std::nullopt;
    return std::pair{part, action};
  }
};

static_assert(Schedule<FixedSchedule>);

}  // namespace dhp
