#include "table.hpp"

#include "outliers.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace examples::doctor {
namespace {

/// To `width` columns; numbers to the right.
std::string column(const std::string& text, std::size_t width, bool right = false) {
  const std::string space(width > text.size() ? width - text.size() : 0, ' ');
  return right ? space + text : text + space;
}

constexpr std::size_t check_width = 13, verdict_width = 9, figure_width = 21, number_width = 11;

/// "0.31 (3)": a value and its rank.
std::string with_rank(const std::vector<double>& values, bool greatest) {
  std::size_t found = values.size();
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    if (std::isnan(values[rank])) continue;
    const bool better = found == values.size() ||
                        (greatest ? values[rank] > values[found] : values[rank] < values[found]);
    if (better) found = rank;
  }
  if (found == values.size()) return "-";
  return dhp::concat(three_digits(values[found]), " (", found, ")");
}

std::string line_of(const Figure& figure) {
  std::vector<double> known;
  for (const double value : figure.of_rank)
    if (!std::isnan(value)) known.push_back(value);
  if (known.empty()) return "";
  return dhp::concat(column(figure.name, figure_width), column(figure.unit, 8),
                     column(with_rank(figure.of_rank, false), number_width + 3, true),
                     column(three_digits(median(known)), number_width, true),
                     column(with_rank(figure.of_rank, true), number_width + 3, true));
}

void append_finding(std::string& text, const Finding& finding) {
  const auto start = dhp::concat(column(finding.check, check_width),
                                 column(name_of(finding.verdict()), verdict_width));
  text += wrapped(start + finding.summary, start.size());
  for (const auto& figure : finding.figures)
    if (const auto line = line_of(figure); !line.empty())
      text += std::string(start.size(), ' ') + line + "\n";
}

}  // namespace

std::string wrapped(const std::string& text, std::size_t indentation) {
  std::string lines;
  std::size_t first = 0, width = table_width;
  while (text.size() - first > width) {
    auto last = text.rfind(' ', first + width);
    if (last == text.npos || last <= first) last = first + width;
    lines += text.substr(first, last - first) + "\n" + std::string(indentation, ' ');
    first = text[last] == ' ' ? last + 1 : last;
    width = table_width - indentation;
  }
  auto last_line = text.substr(first);
  last_line.erase(last_line.find_last_not_of(' ') + 1);
  return lines + last_line + "\n";
}

std::string table_of(const std::vector<Finding>& findings, const std::string& first_line) {
  std::string text = wrapped(first_line, 2) + "\n";
  text += dhp::concat(column("check", check_width), column("verdict", verdict_width),
                      column("figure", figure_width), column("unit", 8),
                      column("least (rank)", number_width + 3, true),
                      column("median", number_width, true),
                      column("most (rank)", number_width + 3, true), "\n");
  for (const auto& finding : findings) append_finding(text, finding);
  for (const auto verdict : {Verdict::warning, Verdict::failed})
    for (const auto& finding : findings) {
      constexpr int most = 10;  // of one check; the JSON file has all
      int said = 0, left = 0;
      for (const auto& problem : finding.problems) {
        if (problem.verdict != verdict) continue;
        if (said++ >= most) {
          ++left;
          continue;
        }
        text += "\n" + wrapped(dhp::concat(column(name_of(verdict), verdict_width), finding.check,
                                           ": ", problem.sentence),
                               verdict_width);
      }
      if (left > 0)
        text +=
            dhp::concat(std::string(verdict_width, ' '), finding.check, ": and ", left, " more\n");
    }
  int counts[4] = {};
  for (const auto& finding : findings) ++counts[static_cast<std::size_t>(finding.verdict())];
  text += dhp::concat("\n", counts[0], " ok, ", counts[1], " skipped, ", counts[2],
                      " with warnings, ", counts[3], " failed\n");
  return text;
}

}  // namespace examples::doctor
