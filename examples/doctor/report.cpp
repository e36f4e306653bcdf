#include "../compare/table.hpp"
#include "outliers.hpp"

#include <nlohmann/json.hpp>

#include <cstdio>
#include <set>

namespace examples::doctor {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of(Verdict verdict) {
  constexpr std::array<const char*, 4> names{"ok", "skipped", "warning", "failed"};
  return names[static_cast<std::size_t>(verdict)];
}

constexpr int check_width = 13, verdict_width = 9, name_width = 28, unit_width = 8;

/// Formats minimum and maximum with their ranks, and the median. A figure with one value shows only this value.
std::string row_of(const Figure& figure) {
  std::vector<std::pair<double, std::size_t>> known;
  for (std::size_t rank = 0; rank < figure.values.size(); ++rank)
    if (!std::isnan(figure.values[rank])) known.emplace_back(figure.values[rank], rank);
  std::sort(known.begin(), known.end());
  const auto shown = [&](std::size_t at) {
    return cell(dhp::concat(three_digits(known[at].first), " (", known[at].second, ")"), -14);
  };
  const auto middle = cell(three_digits(median(figure.values)), -11);
  return cell(figure.name, name_width) + cell(figure.unit, unit_width) +
         (known.size() < 2 ? cell("", -14) + middle : shown(0) + middle + shown(known.size() - 1));
}

Json written(const Finding& finding) {
  Json figures = Json::array(), links = Json::array(), problems = Json::array();
  for (const auto& [name, unit, values] : finding.figures)
    figures.push_back({{"name", name}, {"unit", unit}, {"values", values}});
  for (const auto& [first, second, gb_s] : finding.links)
    links.push_back({{"ranks", {first, second}}, {"gb_s", gb_s}});
  for (const auto& [verdict, ranks, sentence] : finding.problems)
    problems.push_back({{"verdict", name_of(verdict)}, {"ranks", ranks}, {"sentence", sentence}});
  return {{"check", finding.check}, {"verdict", name_of(finding.verdict())},
          {"notes", finding.notes}, {"figures", figures},
          {"links", links},         {"problems", problems}};
}

}  // namespace

std::string three_digits(double value) {
  if (std::isnan(value)) return "-";
  std::array<char, 512> text{};
  std::snprintf(text.data(), text.size(), std::abs(value) < 100 ? "%#.3g" : "%.0f", value);
  return text.data();
}

std::string page_of(const Report& report) {
  const std::set<std::string> hosts(report.hosts.begin(), report.hosts.end());
  auto text =
      dhp::concat("dhp ", version(), ": ", dhp::detail::pluralize(report.hosts.size(), "rank"),
                  " on ", dhp::detail::pluralize(hosts.size(), "host"), ", ", report.device, ", ",
                  three_digits(report.seconds), " s\n\n");
  text += cell("check", check_width) + cell("verdict", verdict_width) + cell("figure", name_width) +
          cell("unit", unit_width) + "  least (rank)     median   most (rank)\n";
  for (const auto& finding : report.findings) {
    auto start = cell(finding.check, check_width) + cell(name_of(finding.verdict()), verdict_width);
    auto lines = finding.notes;
    for (const auto& figure : finding.figures) lines.push_back(row_of(figure));
    if (lines.empty()) lines.emplace_back();
    for (const auto& line : lines) {
      text += start + line + "\n";
      start.assign(start.size(), ' ');
    }
  }
  for (const auto verdict : {Verdict::warning, Verdict::failed})
    for (const auto& finding : report.findings) {
      constexpr int most = 10;  // the JSON file has all problems
      int number = 0;
      for (const auto& problem : finding.problems)
        if (problem.verdict == verdict && ++number <= most)
          text += dhp::concat("\n", name_of(verdict), ": ", finding.check, ": ", problem.sentence,
                              "\n");
      if (number > most) text += dhp::concat("... and ", number - most, " more\n");
    }
  std::array<int, 4> counts{};
  for (const auto& finding : report.findings) ++counts[std::size_t(finding.verdict())];
  return text + dhp::concat("\n", counts[0], " ok, ", counts[1], " skipped, ", counts[2],
                            " with warnings, ", counts[3], " failed\n");
}

std::string json_of(const Report& report) {
  Json findings = Json::array();
  for (const auto& finding : report.findings) findings.push_back(written(finding));
  constexpr std::array verdicts{Verdict::ok, Verdict::failed, Verdict::warning};
  const auto status = static_cast<std::size_t>(report.exit_status());
  const Json json{{"dhp", version()},          {"verdict", name_of(verdicts.at(status))},
                  {"hosts", report.hosts},     {"device", report.device},
                  {"seconds", report.seconds}, {"findings", findings}};
  // Host names and system messages may have any encoding.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace examples::doctor
