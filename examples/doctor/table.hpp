// The report for people: a line for each check and figure, then the problems, the worst last.
#pragma once

#include "finding.hpp"

#include <string>
#include <vector>

namespace examples::doctor {

/// At most this many columns.
inline constexpr std::size_t table_width = 110;

/// first_line: what was examined. Each line ends with '\n'.
[[nodiscard]] std::string table_of(const std::vector<Finding>& findings,
                                   const std::string& first_line);

/// Broken between words to lines of table_width, all but the first indented.
[[nodiscard]] std::string wrapped(const std::string& text, std::size_t indentation);

}  // namespace examples::doctor
