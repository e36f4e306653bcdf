#include <examples/doctor/examination.hpp>
#include <tests/comm/ranks.hpp>

#include <doctest/doctest.h>

using namespace examples::doctor;
using namespace tests;

TEST_CASE("examination: texts of any length and problems come to every rank") {
  const auto found = on_ranks(3, [](Comm<Cpu>& world, Cpu& dev) {
    const DoctorOptions options;
    Examination<Cpu> exam{dev, world, options};
    const auto texts =
        gather_texts(dev, world, std::string(static_cast<std::size_t>(400 * world.rank()), 'x'));
    Finding finding;
    std::vector<Problem> own;
    for (int i = 0; i < world.rank(); ++i)
      own.push_back({Verdict::failed, {}, concat("problem ", i)});
    gather_problems(exam, own, finding);
    return std::pair(texts, finding.problems);
  });
  for (const auto& [texts, problems] : found) {
    REQUIRE(texts.size() == 3);
    for (std::size_t rank = 0; rank < 3; ++rank) CHECK(texts[rank].size() == 400 * rank);
    REQUIRE(problems.size() == 3);
    CHECK(problems[0].ranks == std::set<int>{1});
    CHECK(problems[2].ranks == std::set<int>{2});
    CHECK(problems[2].sentence == "problem 1");
    CHECK(problems[2].verdict == Verdict::failed);
  }
}

TEST_CASE("examination: a slow rank is a problem, with what makes its times vary") {
  Cpu dev;
  DoctorOptions options;
  Examination<Cpu> exam{dev, Comm<Cpu>(), options};
  exam.hosts = {"a", "a", "b"};
  exam.kinds = {"x", "x", "x"};
  exam.notes = {"", "", "4 ranks share 2 cores there"};
  Finding finding;
  judge_rates(exam, {"host memory", "GB/s", {10, 10, 2}}, {1.5, 4}, "why?", finding);
  REQUIRE(finding.problems.size() == 1);
  CHECK(finding.problems[0].verdict == Verdict::failed);
  CHECK(finding.problems[0].ranks == std::set<int>{2});
  CHECK(
      finding.problems[0].sentence ==
      "rank 2 (host b): host memory has 2 GB/s, 5 times less than the median of the others of its "
      "kind (10); 4 ranks share 2 cores there; why?");
}
