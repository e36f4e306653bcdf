#include <examples/doctor/finding.hpp>

#include <doctest/doctest.h>

using namespace examples::doctor;

namespace {

Finding with(std::vector<Verdict> verdicts) {
  Finding finding;
  for (const auto verdict : verdicts) finding.problems.push_back({verdict, {}, ""});
  return finding;
}

}  // namespace

TEST_CASE("finding: the worst problem is the verdict") {
  CHECK(with({}).verdict() == Verdict::ok);
  CHECK(with({Verdict::failed, Verdict::warning}).verdict() == Verdict::failed);
  CHECK(skipped("storage", "nobody asked").verdict() == Verdict::skipped);
}

TEST_CASE("finding: exit status") {
  const auto none = with({}), warned = with({Verdict::warning}), failed = with({Verdict::failed});
  CHECK(exit_status({none, skipped("storage", "")}) == 0);
  CHECK(exit_status({none, warned}) == 2);
  CHECK(exit_status({warned, failed, none}) == 1);
}

TEST_CASE("finding: numbers have three digits") {
  CHECK(three_digits(0.12345) == "0.123");
  CHECK(three_digits(1.2345) == "1.23");
  CHECK(three_digits(12.345) == "12.3");
  CHECK(three_digits(1234.5) == "1234");
  CHECK(three_digits(16) == "16");
  CHECK(three_digits(0) == "0");
  CHECK(three_digits(0.0012345) == "0.00123");
  CHECK(three_digits(not_known) == "-");
}
