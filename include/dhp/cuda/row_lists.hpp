// Lists of rows per table entry, and the parts of long lists.
#pragma once

#include <algorithm>
#include <cstdint>

namespace dhp::cuda {

/// Longer lists are summed in parts of this many rows.
inline constexpr std::int64_t long_list = 64;

/// The lists of rows, as GroupedRows has them.
struct RowLists {
  std::int64_t count;  // of all rows
  std::int64_t entries;
  const std::int32_t* rows;
  const std::int32_t* keys;
  const std::int32_t* starts;

  /// Positions of one entry, or a part of them; empty if first == last.
  struct Part {
    std::int64_t entry, first, last;
  };
  [[nodiscard]] constexpr Part all_of(std::int64_t entry) const {
    return {entry, starts[entry], starts[entry + 1]};
  }
  /// The long list that contains this position, if any.
  [[nodiscard]] constexpr Part long_list_at(std::int64_t place) const {
    if (place >= count || keys[place] >= entries) return {0, 0, 0};
    const auto list = all_of(keys[place]);
    return list.last - list.first > long_list ? list : Part{0, 0, 0};
  }
  // Parts get slots without counting. Cut all positions into windows of long_list: at most one long
  // list and at most one further part start in a window, so two slots per window suffice.
  [[nodiscard]] constexpr std::int64_t windows() const {
    return (count + long_list - 1) / long_list;
  }
  /// The long list that starts in the window; it reaches into the next one.
  [[nodiscard]] constexpr Part beginning_in(std::int64_t window) const {
    const auto next = (window + 1) * long_list;
    const auto list = long_list_at(next);
    return list.first >= next - long_list && list.first < next ? list : Part{0, 0, 0};
  }
  [[nodiscard]] constexpr std::int64_t slot_of(const Part& list, std::int64_t part) const {
    return 2 * ((list.first + part * long_list) / long_list) + (part > 0 ? 1 : 0);
  }
  /// The part of a slot.
  [[nodiscard]] constexpr Part part_in(std::int64_t slot) const {
    const auto begin = slot / 2 * long_list;
    auto part = slot % 2 == 0 ? beginning_in(slot / 2) : long_list_at(begin);
    if (slot % 2 == 1) {  // the next part of a list from an earlier window
      if (part.first >= begin) return {0, 0, 0};
      part.first += (begin - part.first + long_list - 1) / long_list * long_list;
    }
    if (part.first >= part.last) return {0, 0, 0};
    return {part.entry, part.first, std::min(part.first + long_list, part.last)};
  }
};

}  // namespace dhp::cuda
