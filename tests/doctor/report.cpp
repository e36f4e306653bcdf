#include <examples/doctor/finding.hpp>
#include <tests/support/test.hpp>

#include <nlohmann/json.hpp>

using namespace examples::doctor;

namespace {

Report report_of(std::vector<Finding> findings) {
  return {{"a", "b\xff"}, "cpu", 1.5, std::move(findings)};
}
Finding with(Verdict verdict, std::size_t problems = 1) {
  Finding finding;
  finding.check = "links";
  finding.problems.assign(problems, {verdict, {0, 1}, "it is \"slow\""});
  return finding;
}

}  // namespace

TEST_CASE("report: the exit status follows the worst verdict") {
  CHECK(report_of({Finding{}, skipped("why")}).exit_status() == 0);
  CHECK(report_of({Finding{}, with(Verdict::warning)}).exit_status() == 2);
  CHECK(report_of({with(Verdict::warning), with(Verdict::failed), Finding{}}).exit_status() == 1);
}

TEST_CASE("report: the page has all figures, and the worst problems last") {
  auto finding = with(Verdict::failed, 12);
  finding.figures = {{"host memory", "GB/s", {10, 2, not_known, 12.34}}, {"latency", "us", {1234}}};
  const auto page = page_of(report_of({finding, with(Verdict::warning), skipped("nobody asked")}));
  for (const char* part :
       {": 2 ranks on 2 hosts, cpu, 1.50 s\n", "GB/s          2.00 (1)       10.0      12.3 (3)\n",
        "us                           1234\n", "skipped  nobody asked\n", "... and 2 more\n",
        "0 ok, 1 skipped, 1 with warnings, 1 failed\n"})
    CHECK_MESSAGE(page.find(part) != page.npos, part, "\n", page);
  CHECK(page.find("warning: links: it is") < page.find("failed: links: it is"));
}

TEST_CASE("report: JSON has every figure and problem") {
  auto finding = with(Verdict::failed);
  finding.figures = {{"slowest link", "GB/s", {1.5, not_known}}};
  finding.links = {{0, 1, 2.5}};
  const auto json = nlohmann::json::parse(json_of(report_of({finding, skipped("nobody asked")})));
  CHECK(json.at("verdict") == "failed");
  CHECK(json.at("hosts").size() == 2);
  const auto& links = json.at("findings").at(0);
  CHECK(links.at("verdict") == "failed");
  CHECK(links.at("figures").at(0).at("values").at(0) == 1.5);
  CHECK(links.at("figures").at(0).at("values").at(1).is_null());
  CHECK(links.at("links").at(0).at("ranks").at(1) == 1);
  CHECK(links.at("problems").at(0).at("sentence") == "it is \"slow\"");
  CHECK(json.at("findings").at(1).at("verdict") == "skipped");
}
