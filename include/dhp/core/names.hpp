// Tables of names and values, which parse a name and list all names in messages.
#pragma once

#include <dhp/core/error.hpp>

#include <iterator>

namespace dhp::detail {

/// Returns the names of these rows as a choice: "a, b or c". A row has name(), or is a pair of a name and a value.
[[nodiscard]] std::string choice_of(const auto& rows) {
  std::string text;
  auto left = std::size(rows);
  for (const auto& row : rows) {
    if constexpr (requires { row.name(); }) text += row.name();
    else text += row.first;
    if (--left > 0) text += left > 1 ? ", " : " or ";
  }
  return text;
}
/// Returns the value beside a name in a table. Throws Error with the table's names if this one is not there.
[[nodiscard]] auto find_named(const auto& table, std::string_view name, std::string_view what) {
  for (const auto& [known, value] : table)
    if (known == name) return value;
  fail("unknown ", what, " \"", name, "\"; choose ", choice_of(table));
}

}  // namespace dhp::detail
