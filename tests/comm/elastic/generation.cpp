#include <dhp/comm/elastic/generation.hpp>
#include <tests/support/test.hpp>

namespace {

using dhp::detail::next_generation;

std::map<MemberId, detail::MemberReport> reports_of(const Generation& last,
                                                    const std::set<MemberId>& lost = {},
                                                    const std::set<MemberId>& leaving = {}) {
  std::map<MemberId, detail::MemberReport> reports;
  for (const auto member : last.members)
    if (!lost.contains(member)) reports[member] = {7, leaving.contains(member)};
  return reports;
}
Generation generation(MeshShape layout, std::vector<MemberId> members) {
  return {.number = 3, .layout = layout, .members = std::move(members), .steps = 5};
}
using Members = std::vector<MemberId>;

TEST_CASE("next generation: the first one takes newcomers in order, and the rest are spares") {
  const auto result = next_generation({}, {}, {1, 2, 3, 4, 5}, {.tensor = 2});
  REQUIRE(result.has_value());
  CHECK(result->number == 1);
  CHECK(result->layout == MeshShape{2, 2, 1});
  CHECK(result->members == Members{1, 2, 3, 4, 5});
  CHECK(result->steps == -1);
  CHECK_FALSE(next_generation({}, {}, {1, 2, 3}, {.tensor = 2, .layouts = {.min_replicas = 2}})
                  .has_value());
  CHECK(next_generation({}, {}, {1, 2, 3}, {.layouts = {.max_replicas = 2}})->layout ==
        MeshShape{2, 1, 1});
}

TEST_CASE("next generation: replicas of one rank keep their order when one is lost") {
  const auto last = generation({4, 1, 1}, {1, 2, 3, 4});
  const auto result = next_generation(last, reports_of(last, {2}), {}, {});
  CHECK(result->number == 4);
  CHECK(result->layout == MeshShape{3, 1, 1});
  CHECK(result->members == Members{1, 3, 4});
  CHECK(result->steps == 7);
  CHECK(next_generation(last, reports_of(last, {2}), {9}, {})->members == Members{1, 3, 4, 9});
}

TEST_CASE("next generation: members of incomplete replicas fill holes at the same place") {
  // Two replicas of two stages: ranks are data-first, so replica d's stage p is rank d + 2 p.
  const auto last = generation({2, 1, 2}, {10, 20, 11, 21});
  const ElasticOptions options{.pipeline = 2};
  SUBCASE("one whole replica stays, the other's member is a spare") {
    const auto result = next_generation(last, reports_of(last, {20}), {}, options);
    CHECK(result->layout == MeshShape{1, 1, 2});
    CHECK(result->members == Members{10, 11, 21});
  }
  SUBCASE("two halves make one replica, each at its old stage") {
    const auto result = next_generation(last, reports_of(last, {10, 21}), {}, options);
    CHECK(result->layout == MeshShape{1, 1, 2});
    CHECK(result->members == Members{20, 11});
  }
  SUBCASE("a rank of the same stage, which has the state, fills a hole") {
    const auto three = generation({3, 1, 2}, {10, 20, 30, 11, 21, 31});
    const auto result = next_generation(three, reports_of(three, {11, 21, 30}), {}, options);
    CHECK(result->layout == MeshShape{1, 1, 2});
    CHECK(result->members == Members{10, 31, 20});
  }
  SUBCASE("a spare fills the hole") {
    auto with_spare = last;
    with_spare.members.push_back(99);
    const auto result = next_generation(with_spare, reports_of(with_spare, {20}), {}, options);
    CHECK(result->layout == MeshShape{2, 1, 2});
    CHECK(result->members == Members{10, 99, 11, 21});
  }
}

TEST_CASE("next generation: a leaving member is the last spare, so that it hands over its state") {
  const auto last = generation({3, 1, 1}, {1, 2, 3});
  const auto result = next_generation(last, reports_of(last, {}, {1}), {}, {});
  CHECK(result->layout == MeshShape{2, 1, 1});
  CHECK(result->members == Members{2, 3, 1});
  const auto few =
      next_generation(last, reports_of(last, {}, {1}), {}, {.layouts = {.min_replicas = 3}});
  CHECK(few->layout == MeshShape{3, 1, 1});  // too few would stay, so all do
  CHECK(few->members == Members{1, 2, 3});
  CHECK(next_generation(last, reports_of(last, {2}, {1, 3}), {}, {})->members == Members{1, 3});
  CHECK(next_generation(last, reports_of(last, {2}, {1, 3}), {9}, {})->members == Members{9, 1, 3});
}

TEST_CASE("next generation: members keep their order if other axes change") {
  const auto last = generation({2, 2, 1}, {1, 2, 3, 4, 5});
  const ElasticOptions all{.tensor = 2, .layouts = {.step_time = [](const MeshShape& layout) {
                                          return layout.data == 1 ? std::optional(1.0)
                                                                  : std::nullopt;
                                        }}};
  const auto result = next_generation(last, reports_of(last, {2}, {3}), {9, 8}, all);
  CHECK(result->layout == MeshShape{1, 5, 1});
  CHECK(result->members == Members{1, 4, 5, 9, 8, 3});
  const auto again = next_generation(*result, reports_of(*result, {3, 4}), {}, all);
  CHECK(again->layout == MeshShape{1, 4, 1});
  CHECK(again->members == Members{1, 5, 9, 8});
  CHECK(again->steps == 7);
  // The first generation, and a generation after all members are lost, take the job's own axes if the ranks suffice.
  CHECK(next_generation({}, {}, {1, 2, 3}, all)->layout == MeshShape{1, 2, 1});
  CHECK(next_generation(*result, {}, {1, 2, 3}, all)->layout == MeshShape{1, 2, 1});
  CHECK(next_generation({}, {}, {1}, all)->layout == MeshShape{1, 1, 1});
}

// Whichever members are lost and join: no member has two ranks, the layout is full, and as many replicas as fit run.
TEST_CASE("next generation: the rules hold for every loss in every small layout") {
  for (int tensor = 1; tensor <= 2; ++tensor)
    for (int pipeline = 1; pipeline <= 2; ++pipeline)
      for (int data = 1; data <= 2; ++data)
        for (int spares = 0; spares <= 1; ++spares)
          for (int fresh = 0; fresh <= 2; ++fresh) {
            const auto ranks = data * tensor * pipeline + spares;
            Members all, newcomers;
            for (int at = 0; at < ranks; ++at) all.push_back(static_cast<MemberId>(100 + at));
            for (int at = 0; at < fresh; ++at) newcomers.push_back(static_cast<MemberId>(900 + at));
            const auto last = generation({data, tensor, pipeline}, all);
            for (unsigned bits = 0; bits < 1u << ranks; ++bits) {
              std::set<MemberId> lost;
              for (int at = 0; at < ranks; ++at)
                if (bits >> at & 1) lost.insert(all[static_cast<std::size_t>(at)]);
              const auto result = next_generation(last, reports_of(last, lost), newcomers,
                                                  {.tensor = tensor, .pipeline = pipeline});
              const auto left = ranks - static_cast<int>(lost.size()) + fresh;
              const auto replicas = left / (tensor * pipeline);
              REQUIRE(result.has_value() == (replicas > 0));
              if (!result) continue;
              REQUIRE(result->layout == MeshShape{replicas, tensor, pipeline});
              const std::set<MemberId> different(result->members.begin(), result->members.end());
              REQUIRE(different.size() == static_cast<std::size_t>(left));
              REQUIRE(result->members.size() == different.size());
              for (const auto member : lost) REQUIRE_FALSE(different.contains(member));
              // A replica that lost no member keeps all its ranks.
              for (int d = 0; d < data; ++d) {
                Members replica;
                for (int place = 0; place < tensor * pipeline; ++place)
                  replica.push_back(all[static_cast<std::size_t>(
                      place % tensor + tensor * (d + data * (place / tensor)))]);
                const auto whole = std::none_of(replica.begin(), replica.end(),
                                                [&](auto member) { return lost.contains(member); });
                bool kept = false;
                for (int e = 0; e < replicas; ++e) {
                  bool same = true;
                  for (int place = 0; place < tensor * pipeline; ++place)
                    same =
                        same && result->members[static_cast<std::size_t>(
                                    place % tensor + tensor * (e + replicas * (place / tensor)))] ==
                                    replica[static_cast<std::size_t>(place)];
                  kept = kept || same;
                }
                REQUIRE((!whole || kept));
              }
            }
          }
}

}  // namespace
