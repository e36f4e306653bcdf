#include <examples/doctor/links.hpp>

#include <doctest/doctest.h>

using namespace examples::doctor;

namespace {

// Every pair of ranks at 1 ms, but for those that `slow` names.
template <class Slow>
std::vector<Problem> judged(int ranks, Slow slow, std::vector<std::string> hosts = {}) {
  hosts.resize(static_cast<std::size_t>(ranks), "a");
  std::vector<Link> links;
  for (int first = 0; first < ranks; ++first)
    for (int second = first + 1; second < ranks; ++second)
      links.push_back({first, second, slow(first, second) ? 0.01 : 0.001});
  return judge_links(links, hosts, {2, 5}, 1, [](int rank) { return dhp::concat("rank ", rank); });
}

}  // namespace

TEST_CASE("links: one slow link is named by its two ranks") {
  CHECK(judged(4, [](int, int) { return false; }).empty());
  const auto found = judged(4, [](int first, int second) { return first == 1 && second == 3; });
  REQUIRE(found.size() == 1);
  CHECK(found[0].verdict == Verdict::failed);
  CHECK(found[0].ranks == std::set<int>{1, 3});
  CHECK(found[0].sentence ==
        "the link between rank 1 and rank 3 has 0.100 GB/s, 10 times less than the median of the "
        "other links within a host (1); what else is at work there?");
}

TEST_CASE("links: a rank all of whose links are slow is named alone") {
  const auto found = judged(5, [](int first, int second) { return first == 2 || second == 2; });
  REQUIRE(found.size() == 1);
  CHECK(found[0].ranks == std::set<int>{2});
  CHECK(found[0].sentence.starts_with("all links of rank 2 are slow"));
}

TEST_CASE("links: those across hosts may be slower than those within") {
  const auto across = [](int, int second) { return second == 4; };
  CHECK(judged(5, across, {"a", "a", "a", "a", "b"}).empty());
  CHECK_FALSE(judged(5, across).empty());
  const auto one = [](int first, int second) { return first == 0 && second == 4; };
  const auto found = judged(6, one, {"a", "a", "a", "b", "b", "b"});
  REQUIRE(found.size() == 1);
  CHECK(found[0].sentence.ends_with("look at the cables and switches between them"));
}
