#include <examples/doctor/limits.hpp>

#include <doctest/doctest.h>

#include <set>
#include <string>

using namespace examples::doctor;

TEST_CASE("limits: above and below") {
  const Limit limit{2, 5};
  CHECK(above(2, limit) == Verdict::ok);
  CHECK(above(2.1, limit) == Verdict::warning);
  CHECK(above(5.1, limit) == Verdict::failed);
  const Limit least{10, 1};
  CHECK(below(10, least) == Verdict::ok);
  CHECK(below(9, least) == Verdict::warning);
  CHECK(below(0, least) == Verdict::failed);
}

TEST_CASE("limits: none is never reached, nor is one by what is not known") {
  CHECK(above(1e300, {}) == Verdict::ok);
  CHECK(below(0, {}) == Verdict::ok);
  CHECK(above(not_known, {2, 5}) == Verdict::ok);
  CHECK(below(not_known, {2, 5}) == Verdict::ok);
  CHECK(above(1, {{}, 0}) == Verdict::failed);
}

TEST_CASE("limits: each has one name, and is the worse for a failure") {
  std::set<std::string> names;
  const Limits limits;
  for (const auto& name : limit_names) {
    CHECK(names.insert(name.name).second);
    const auto& limit = limits.*name.limit;
    if (!limit.warning || !limit.failed) continue;
    if (name.least) CHECK(*limit.failed < *limit.warning);
    else CHECK(*limit.failed > *limit.warning);
  }
  CHECK(names.size() * sizeof(Limit) == sizeof(Limits));  // none was forgotten
}
