#include "json.hpp"

#include <dhp/core/config.hpp>
#include <dhp/core/error.hpp>

#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>
#include <iterator>

namespace examples::doctor {
namespace {

using Json = nlohmann::ordered_json;

Json number(const std::optional<double>& value) { return value ? Json(*value) : Json(); }
/// JSON knows neither NaN nor infinity.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

std::optional<double> read_number(const Json& value, const std::string& where) {
  if (value.is_null()) return std::nullopt;
  dhp::check(value.is_number() && value.get<double>() >= 0, where, " is ", value.dump(),
             "; a limit is a number of 0 or more, or null for none");
  return value.get<double>();
}

Limit read_limit(const Json& value, Limit limit, const std::string& where) {
  dhp::check(value.is_object(), where, " is ", value.dump(),
             R"(; a limit is {"warning": NUMBER, "failed": NUMBER})");
  for (const auto& [key, one] : value.items()) {
    dhp::check(key == "warning" || key == "failed", where, " has the key \"", key,
               "\"; there are \"warning\" and \"failed\"");
    (key == "warning" ? limit.warning : limit.failed) = read_number(one, where + "." + key);
  }
  return limit;
}

Json written(const Figure& figure) {
  Json values = Json::array();
  for (const double value : figure.of_rank) values.push_back(number(value));
  return {{"name", figure.name}, {"unit", figure.unit}, {"of_rank", std::move(values)}};
}

Json written(const Finding& finding) {
  Json figures = Json::array(), problems = Json::array();
  for (const auto& figure : finding.figures) figures.push_back(written(figure));
  for (const auto& problem : finding.problems)
    problems.push_back({{"verdict", name_of(problem.verdict)},
                        {"ranks", problem.ranks},
                        {"sentence", problem.sentence}});
  Json json{{"check", finding.check},
            {"verdict", name_of(finding.verdict())},
            {"summary", finding.summary},
            {"figures", std::move(figures)},
            {"problems", std::move(problems)}};
  if (finding.pairs.empty()) return json;
  Json pairs = Json::array();
  for (const auto& [first, second, value] : finding.pairs)
    pairs.push_back({{"ranks", {first, second}}, {"value", number(value)}});
  json["pairs"] = {{"unit", finding.pair_figure}, {"of_ranks", std::move(pairs)}};
  return json;
}

}  // namespace

Limits parse_limits(const std::string& text, const std::string& path) {
  const auto json = Json::parse(text, nullptr, false);
  dhp::check(json.is_object(), "--limits ", path,
             " is not a JSON object; --print-limits writes one to begin with");
  Limits limits;
  for (const auto& [key, value] : json.items()) {
    const LimitName* found = nullptr;
    for (const auto& name : limit_names)
      if (key == name.name) found = &name;
    dhp::check(found != nullptr, "--limits ", path, ": there is no limit \"", key,
               "\"; --print-limits lists those that there are");
    auto& limit = limits.*found->limit;
    limit = read_limit(value, limit, dhp::concat("--limits ", path, ": ", key));
  }
  return limits;
}

Limits read_limits(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  dhp::check(file.good(), "cannot read --limits ", path, "; is it there?");
  return parse_limits(std::string(std::istreambuf_iterator<char>(file), {}), path);
}

std::string limits_text(const Limits& limits) {
  Json json;
  for (const auto& name : limit_names) {
    const auto& limit = limits.*name.limit;
    json[name.name] = {{"warning", number(limit.warning)}, {"failed", number(limit.failed)}};
  }
  return json.dump(2) + "\n";
}

std::string report_text(const Report& report) {
  Json findings = Json::array();
  for (const auto& finding : report.findings) findings.push_back(written(finding));
  const int status = exit_status(report.findings);
  const Json json{
      {"dhp", dhp::concat(dhp::version_major, ".", dhp::version_minor, ".", dhp::version_patch)},
      {"verdict", status == 0   ? "ok"
                  : status == 1 ? "failed"
                                : "warning"},
      {"ranks", report.hosts.size()},
      {"hosts", report.hosts},
      {"device", report.device},
      {"seconds", number(report.seconds)},
      {"findings", std::move(findings)}};
  // Names of hosts and messages of systems may be in any encoding.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void write_report(const Report& report, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  file << report_text(report) << std::flush;
  dhp::check(file.good(), "cannot write --json ", path, "; does its directory exist?");
}

}  // namespace examples::doctor
