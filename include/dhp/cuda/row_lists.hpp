// Lists of rows, one for each entry of a table, and the parts of those that are long.
#pragma once

#include <algorithm>
#include <cstdint>

namespace dhp::cuda {

/// More rows than this are summed in parts of this many.
inline constexpr std::int64_t long_list = 64;

/// The lists of rows, as GroupedRows has them.
struct RowLists {
  std::int64_t count;  // of all rows
  std::int64_t entries;
  const std::int32_t* rows;
  const std::int32_t* keys;
  const std::int32_t* starts;

  /// Places of one entry or of a part of them; none where first == last.
  struct Part {
    std::int64_t entry, first, last;
  };
  [[nodiscard]] constexpr Part all_of(std::int64_t entry) const {
    return {entry, starts[entry], starts[entry + 1]};
  }
  /// The long list that has this place, if one has.
  [[nodiscard]] constexpr Part long_list_at(std::int64_t place) const {
    if (place >= count || keys[place] >= entries) return {0, 0, 0};
    const auto list = all_of(keys[place]);
    return list.last - list.first > long_list ? list : Part{0, 0, 0};
  }
  // Parts need slots that are known without counting. Cut all places into windows of long_list: in
  // a window at most one long list begins, and at most one other part of a long list; so each
  // window has two slots.
  [[nodiscard]] constexpr std::int64_t windows() const {
    return (count + long_list - 1) / long_list;
  }
  /// The long list that begins in the window: it reaches into the next one.
  [[nodiscard]] constexpr Part beginning_in(std::int64_t window) const {
    const auto next = (window + 1) * long_list;
    const auto list = long_list_at(next);
    return list.first >= next - long_list && list.first < next ? list : Part{0, 0, 0};
  }
  [[nodiscard]] constexpr std::int64_t slot_of(const Part& list, std::int64_t part) const {
    return 2 * ((list.first + part * long_list) / long_list) + (part > 0 ? 1 : 0);
  }
  /// The part in a slot.
  [[nodiscard]] constexpr Part part_in(std::int64_t slot) const {
    const auto begin = slot / 2 * long_list;
    auto part = slot % 2 == 0 ? beginning_in(slot / 2) : long_list_at(begin);
    if (slot % 2 == 1) {  // a list that began before: its next part that begins here
      if (part.first >= begin) return {0, 0, 0};
      part.first += (begin - part.first + long_list - 1) / long_list * long_list;
    }
    if (part.first >= part.last) return {0, 0, 0};
    return {part.entry, part.first, std::min(part.first + long_list, part.last)};
  }
};

}  // namespace dhp::cuda
