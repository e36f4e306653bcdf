#include <dhp/core/error.hpp>
#include <examples/doctor/json.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace examples::doctor;

namespace {

std::string refusal(const std::string& text) {
  try {
    static_cast<void>(parse_limits(text, "FILE"));
  } catch (const dhp::Error& error) {
    return error.sentence();
  }
  return "";
}

}  // namespace

TEST_CASE("json: what --print-limits prints, --limits reads") {
  Limits limits;
  limits.gemm_slowdown = {1.5, {}};
  limits.network_gb_s = {{}, 3};
  const auto again = parse_limits(limits_text(limits), "FILE");
  CHECK(limits_text(again) == limits_text(limits));
  CHECK(again.gemm_slowdown.warning == 1.5);
  CHECK_FALSE(again.gemm_slowdown.failed.has_value());
  CHECK(again.network_gb_s.failed == 3);
}

TEST_CASE("json: limits that a file leaves out stay") {
  const auto limits = parse_limits(
      R"({"clock_skew_s": {"failed": 2}, "gemm_slowdown": {"warning": null}})", "FILE");
  CHECK(limits.clock_skew_s.warning == Limits{}.clock_skew_s.warning);
  CHECK(limits.clock_skew_s.failed == 2);
  CHECK_FALSE(limits.gemm_slowdown.warning.has_value());
  CHECK(limits.copy_slowdown.failed == Limits{}.copy_slowdown.failed);
}

TEST_CASE("json: limits that make no sense are refused in one sentence") {
  CHECK(refusal("[1]") ==
        "--limits FILE is not a JSON object; --print-limits writes one to begin with");
  CHECK(refusal("{") == refusal("[1]"));
  CHECK(refusal(R"({"gemm": {}})") ==
        "--limits FILE: there is no limit \"gemm\"; --print-limits lists those that there are");
  CHECK(refusal(R"({"gemm_slowdown": 2})") ==
        R"(--limits FILE: gemm_slowdown is 2; a limit is {"warning": NUMBER, "failed": NUMBER})");
  CHECK(refusal(R"({"gemm_slowdown": {"fail": 2}})") ==
        R"(--limits FILE: gemm_slowdown has the key "fail"; there are "warning" and "failed")");
  CHECK(
      refusal(R"({"gemm_slowdown": {"failed": "2"}})") ==
      R"(--limits FILE: gemm_slowdown.failed is "2"; a limit is a number of 0 or more, or null for none)");
  CHECK(refusal(R"({"gemm_slowdown": {"failed": -1}})") != "");
}

TEST_CASE("json: a report has everything") {
  Report report;
  report.hosts = {"a", "b\xff"};
  report.device = "cpu";
  Finding finding;
  finding.check = "links";
  finding.figures = {{"slowest link", "GB/s", {1.5, not_known}}};
  finding.pair_figure = "GB/s";
  finding.pairs = {{0, 1, 2.5}};
  finding.problems = {{Verdict::failed, {0, 1}, "it is \"slow\""}};
  report.findings = {finding, skipped("storage", "nobody asked")};
  const auto json = nlohmann::json::parse(report_text(report));
  CHECK(json.at("verdict") == "failed");
  CHECK(json.at("ranks") == 2);
  const auto& links = json.at("findings").at(0);
  CHECK(links.at("verdict") == "failed");
  CHECK(links.at("figures").at(0).at("of_rank").at(0) == 1.5);
  CHECK(links.at("figures").at(0).at("of_rank").at(1).is_null());
  CHECK(links.at("pairs").at("of_ranks").at(0).at("ranks").at(1) == 1);
  CHECK(links.at("problems").at(0).at("sentence") == "it is \"slow\"");
  CHECK(json.at("findings").at(1).at("verdict") == "skipped");
}
