#include <dhp/device/cpu.hpp>
#include <examples/doctor/links.hpp>
#include <tests/support/test.hpp>

using namespace examples::doctor;

namespace {

// All pairs of ranks have 10 GB/s, except those to which rate(first, second) gives another rate.
template <class Rate>
std::vector<Problem> judged(std::vector<std::string> hosts, Rate rate) {
  dhp::Cpu dev;
  const DoctorOptions options;
  const Examination<dhp::Cpu> exam{dev, dhp::Comm<dhp::Cpu>(), options, hosts, hosts};
  Finding finding;
  const int ranks = static_cast<int>(hosts.size());
  for (int first = 0; first < ranks; ++first)
    for (int second = first + 1; second < ranks; ++second)
      finding.links.push_back({first, second, static_cast<double>(rate(first, second))});
  judge_links(exam, finding);
  return finding.problems;
}
std::vector<std::string> one_host(std::size_t ranks) {
  return std::vector<std::string>(ranks, "a");
}

}  // namespace

TEST_CASE("links: every two ranks meet once, and a rank meets one other at a time") {
  for (int ranks = 1; ranks <= 17; ++ranks) {
    std::set<std::pair<int, int>> met;
    for (int round = 0; round < ranks; ++round) {
      int pauses = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const int partner = partner_of(rank, round, ranks);
        pauses += partner == -1;
        if (partner == -1) continue;
        REQUIRE(partner != rank);
        REQUIRE(partner < ranks);
        REQUIRE(partner_of(partner, round, ranks) == rank);
        if (rank < partner) CHECK(met.insert({rank, partner}).second);
      }
      CHECK(pauses == (ranks % 2 == 1 ? 1 : round % 2 == 1 ? 0 : 2));
    }
    CHECK(met.size() == static_cast<std::size_t>(ranks * (ranks - 1) / 2));
  }
}

TEST_CASE("links: a slow link is named by its two ranks") {
  CHECK(judged(one_host(4), [](int, int) { return 10; }).empty());
  const auto found =
      judged(one_host(4), [](int first, int second) { return first == 1 && second == 3 ? 1 : 10; });
  REQUIRE(found.size() == 1);
  CHECK(found[0].verdict == Verdict::failed);
  CHECK(found[0].ranks == std::set<int>{1, 3});
  CHECK(found[0].sentence ==
        "the link between rank 1 (host a) and rank 3 (host a) has 1.00 GB/s, 10.0 times less than "
        "the median of the other links within a host (10.0); is another program at work there?");
}

TEST_CASE("links: a rank with slow links only is named alone, and explains those links") {
  for (const std::size_t ranks : {3, 5}) {
    const auto found = judged(
        one_host(ranks), [](int first, int second) { return first == 2 || second == 2 ? 1 : 10; });
    REQUIRE(found.size() == 1);
    CHECK(found[0].ranks == std::set<int>{2});
    CHECK(found[0].sentence.starts_with("the fastest link of rank 2 (host a) has 1.00 GB/s, 10.0"));
  }
  // A slow rank does not explain a link that is far slower than the rank's other links.
  const auto found = judged(one_host(5), [](int first, int second) {
    return first == 2 && second == 4 ? 0.01 : first == 2 || second == 2 ? 1 : 10;
  });
  REQUIRE(found.size() == 2);
  CHECK(found[1].ranks == std::set<int>{2, 4});
}

TEST_CASE("links: links between hosts are compared with each other only") {
  const std::vector<std::string> hosts{"a", "a", "a", "b", "b", "b"};
  const auto across = [](int first, int second) { return (first < 3) != (second < 3); };
  CHECK(
      judged(hosts, [&](int first, int second) { return across(first, second) ? 1 : 10; }).empty());
  const auto found = judged(hosts, [&](int first, int second) {
    return first == 0 && second == 4 ? 0.1 : across(first, second) ? 1 : 10;
  });
  REQUIRE(found.size() == 1);
  CHECK(found[0].ranks == std::set<int>{0, 4});
  CHECK(found[0].sentence.ends_with("look at the cables and switches between them"));
}
