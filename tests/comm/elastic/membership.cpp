// Members of an elastic job agree on generations. Members are threads; their store is in memory.
#include <dhp/comm/elastic/membership.hpp>
#include <tests/comm/process_ranks.hpp>

#include <future>

namespace {

using dhp::detail::GenerationStore;

struct Job {
  std::shared_ptr<MemoryStore> store = std::make_shared<MemoryStore>();
  ElasticOptions options{.timeout_s = 2 * hang_s, .silent_s = hang_s};
  int started = 3;

  [[nodiscard]] dhp::detail::Membership member(MemberId id) const {
    return {store, id, {static_cast<int>(id) - 1, concat("thread ", id)}, started, options};
  }
  /// Calls next(last, report) of all members at the same time.
  [[nodiscard]] std::vector<Generation> next(const std::vector<dhp::detail::Membership*>& members,
                                             const Generation& last,
                                             dhp::detail::MemberReport report = {5}) const {
    std::vector<std::future<std::optional<Generation>>> results;
    for (auto* member : members)
      results.push_back(std::async(std::launch::async, [=] { return member->next(last, report); }));
    std::vector<Generation> found;
    for (auto& result : results) found.push_back(result.get().value());
    return found;
  }
};
using Members = std::vector<MemberId>;

TEST_CASE("membership: the first generation waits for all started ranks, in their order") {
  Job job;
  auto third = job.member(3), first = job.member(1);
  auto waiting = std::async(std::launch::async, [&] { return job.next({&first, &third}, {}, {}); });
  CHECK(waiting.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  auto second = job.member(2);
  CHECK(job.next({&second}, {}, {}).front().members == Members{1, 2, 3});
  for (const auto& found : waiting.get()) CHECK(found.members == Members{1, 2, 3});
}

TEST_CASE("membership: of simultaneous proposals one wins on all members") {
  for (int round = 0; round < 20; ++round) {
    Job job;
    auto one = job.member(1), two = job.member(2), three = job.member(3);
    Generation last = job.next({&one, &two, &three}, {}, {}).front();
    for (int change = 2; change < 6; ++change) {
      const auto found = job.next({&one, &two, &three}, last);
      for (const auto& each : found) {
        CHECK(each.number == change);
        CHECK(each.members == found.front().members);
        CHECK(each.steps == 5);
      }
      last = found.front();
    }
  }
}

TEST_CASE("membership: a member that left is dropped at once, a silent one after a timeout") {
  Job job;
  job.options.silent_s = 3;
  auto one = job.member(1), two = job.member(2), three = job.member(3);
  const auto first = job.next({&one, &two, &three}, {}, {}).front();
  const auto begin = std::chrono::steady_clock::now();
  SUBCASE("the member has left") {
    job.store->set("left/2", "");
    CHECK(job.next({&one, &three}, first).front().members == Members{1, 3});
    CHECK(seconds_since(begin) < job.options.silent_s);
    CHECK_FALSE(one.could_grow(first));
  }
  SUBCASE("a silent member is dropped, and later returns as a newcomer") {
    const auto second = job.next({&one, &three}, first).front();
    CHECK(second.members == Members{1, 3});
    CHECK(seconds_since(begin) >= job.options.silent_s);
    GenerationStore old(job.store, first), now(job.store, second);
    CHECK_THROWS_WITH_AS(
        old.set("verdict", "nonsense"),
        Contains("this process was left out of generation 2: it was stopped or could not"),
        dhp::detail::LeftOut);
    now.set("verdict", "true");
    CHECK(old.find("verdict") == std::nullopt);
    CHECK_FALSE(one.could_grow(second));
    auto woken = std::async(std::launch::async, [&] { return two.next(first, {5}); });
    while (!one.could_grow(second)) sleep_ms(1);
    const auto third = job.next({&one, &three}, second).front();
    CHECK(third.members == Members{1, 3, 2});
    CHECK(woken.get()->number == 3);
  }
}

TEST_CASE("membership: a generation needs half of the last one's members") {
  Job job;
  job.options.timeout_s = 0.5;
  job.options.silent_s = 0.2;
  auto one = job.member(1), two = job.member(2), three = job.member(3);
  const auto first = job.next({&one, &two, &three}, {}, {}).front();
  CHECK_THROWS_WITH_AS((void)one.next(first, {5}),
                       Contains("only 1 of the 3 members of generation 1 can be reached"), Error);
  CHECK_FALSE(job.store->find("generation/2").has_value());
}

TEST_CASE("membership: a silent member with a broken connection is dropped soon") {
  Job job;
  auto one = job.member(1), two = job.member(2), three = job.member(3);
  const auto first = job.next({&one, &two, &three}, {}, {}).front();
  const auto says = [&](int rank, const dhp::detail::RankState& state) {
    job.store->set(concat("in/1/state/", rank), state.written());
  };
  says(0, {.ended = true, .lost = {1}});
  const auto begin = std::chrono::steady_clock::now();
  SUBCASE("the member is silent") {
    CHECK(job.next({&one, &three}, first).front().members == Members{1, 3});
    CHECK(seconds_since(begin) >= job.options.lost_s);
    CHECK(seconds_since(begin) < job.options.silent_s);
  }
  SUBCASE("the member has heard of the end") {
    says(1, {.ended = true});
    auto others = std::async(std::launch::async, [&] { return job.next({&one, &three}, first); });
    CHECK(others.wait_for(std::chrono::milliseconds(600)) == std::future_status::timeout);
    CHECK(job.next({&two}, first).front().members == Members{1, 2, 3});
    CHECK(others.get().front().members == Members{1, 2, 3});
  }
}

TEST_CASE("membership: if no member is left, newcomers start again, with or without rank 0") {
  Job job;
  std::vector<dhp::detail::Membership> members;
  for (MemberId id = 1; id <= 3; ++id) members.push_back(job.member(id));
  const auto first = job.next({&members[0], &members[1], &members[2]}, {}, {}).front();
  dhp::detail::Membership second(job.store, 12, {1, "second"}, 3, job.options),
      third(job.store, 13, {2, "third"}, 3, job.options),
      fourth(job.store, 14, {3, "fourth"}, 3, job.options);
  for (const auto* gone : {"left/1", "left/2"}) job.store->set(gone, "");
  auto waiting = std::async(std::launch::async, [&] {
    return job.next({&second, &third, &fourth}, {}, {});
  });
  CHECK(waiting.wait_for(std::chrono::milliseconds(1500)) == std::future_status::timeout);
  job.store->set("left/3", "");
  for (const auto& found : waiting.get()) {
    CHECK(found.number == 2);
    CHECK(found.members == Members{12, 13, 14});
    CHECK(found.steps == -1);
  }
}

TEST_CASE("membership: a newcomer does not restart a finished job") {
  Job job;
  job.started = 1;
  auto one = job.member(1);
  (void)job.next({&one}, {}, {});
  auto late = std::async(std::launch::async, [&] {
    dhp::detail::Membership newcomer(job.store, 2, {1, "newcomer"}, 1, job.options);
    return newcomer.next({}, {});
  });
  sleep_ms(100);
  one.finish();
  job.store->set("left/1", "");
  CHECK_FALSE(late.get().has_value());
  CHECK_FALSE(job.store->find("generation/2").has_value());
}

TEST_CASE("membership: too few ranks wait for more; a finished job takes no newcomers") {
  Job job;
  job.options.layouts.min_replicas = 3;
  auto one = job.member(1), two = job.member(2), three = job.member(3);
  const auto first = job.next({&one, &two, &three}, {}, {}).front();
  job.store->set("left/3", "");
  auto waiting = std::async(std::launch::async, [&] { return job.next({&one, &two}, first); });
  CHECK(waiting.wait_for(std::chrono::milliseconds(100)) == std::future_status::timeout);
  job.options.gives_up = [] { return true; };
  auto stops = job.member(1);
  CHECK_FALSE(stops.next(first, {}).has_value());  // it has no state to save
  CHECK(stops.waits_for().starts_with(
      "only 2 ranks left, and at least 3 replicas of 1 rank are needed"));
  job.options.gives_up = {};
  job.options.timeout_s = 0.6;
  std::vector<std::string> lines;
  CHECK_THROWS_AS(
      (void)job.member(1).next(first, {5}, [&](const auto& text) { lines.push_back(text); }),
      dhp::Error);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].starts_with("waits up to 0.6 s: only 2 ranks left, and at least 3 replicas"));
  job.options.timeout_s = Job().options.timeout_s;
  auto four = job.member(4);
  CHECK(job.next({&four}, {}, {}).front().members == Members{1, 2, 4});
  waiting.get();
  one.finish();
  auto late = job.member(5);
  CHECK_FALSE(late.next({}, {}).has_value());
}

TEST_CASE("membership: too few ranks that are asked to stop continue together, to save") {
  Job job;
  job.options.layouts.min_replicas = 3;
  auto one = job.member(1), two = job.member(2), three = job.member(3);
  const auto first = job.next({&one, &two, &three}, {}, {}).front();
  job.store->set("left/3", "");
  job.options.gives_up = [] { return true; };
  auto stops = job.member(2);
  for (const auto& found : job.next({&one, &stops}, first)) {
    CHECK(found.members == Members{1, 2});
    CHECK(found.steps == 5);
  }
}

TEST_CASE("membership: all members hear why the store's holder ends the job") {
  Job job;
  auto one = job.member(1), two = job.member(2), three = job.member(3);
  const auto first = job.next({&one, &two, &three}, {}, {}).front();
  one.finish("the job ends with rank 0");
  CHECK_THROWS_WITH_AS((void)two.next(first, {5}), Contains("the job ends with rank 0"), Error);
}

TEST_CASE("membership: newcomers are admitted if a layout of any axes uses more ranks") {
  Job job;
  job.options.tensor = 2;
  job.options.layouts.step_time = [](const MeshShape& layout) {
    return layout.size() == 5 ? std::nullopt : std::optional(1.0);
  };
  auto one = job.member(1), two = job.member(2), three = job.member(3), four = job.member(4);
  const auto first = job.next({&one, &two, &three, &four}, {}, {}).front();
  CHECK(first.layout == MeshShape{2, 2, 1});
  auto five = job.member(5);
  CHECK_FALSE(one.could_grow(first));
  auto six = job.member(6);
  CHECK(one.could_grow(first));
  CHECK(job.next({&one, &two, &three, &four}, first).front().layout == MeshShape{3, 2, 1});
}

TEST_CASE("membership: a newcomer may give up, a member with state stays") {
  Job job;
  auto one = job.member(1), two = job.member(2), three = job.member(3);
  const auto first = job.next({&one, &two, &three}, {}, {}).front();
  job.options.gives_up = [] { return true; };
  auto four = job.member(4);
  CHECK(one.could_grow(first));
  CHECK_FALSE(four.next({}, {}).has_value());
  CHECK_FALSE(one.could_grow(first));
  dhp::detail::Membership wants_out(job.store, 3, {2, "thread 3"}, 3, job.options);
  CHECK(job.next({&one, &two, &wants_out}, first).back().members == Members{1, 2, 3});
}

TEST_CASE("membership: a dropped member that holds the store stays until the others end") {
  Job job;
  job.options.silent_s = 0.1;
  auto one = job.member(1), two = job.member(2), three = job.member(3);
  const auto first = job.next({&one, &two, &three}, {}, {}).front();
  CHECK(job.next({&two, &three}, first).front().members == Members{2, 3});
  job.store->held_here = true;
  job.options.gives_up = [] { return true; };
  bool for_a_while = false;
  SUBCASE("") {}
  SUBCASE("for a limited time") { for_a_while = true; }
  if (for_a_while) job.options.store_stays_s = 0.1;
  auto holder = job.member(1);
  auto waiting = std::async(std::launch::async, [&] { return holder.next(first, {5}); });
  if (!for_a_while) {
    CHECK(waiting.wait_for(std::chrono::milliseconds(100)) == std::future_status::timeout);
    for (const auto* left : {"left/2", "left/3"}) job.store->set(left, "");
  }
  CHECK_FALSE(waiting.get().has_value());
}

TEST_CASE("generation store: ranks hear of their own generation's lost members only") {
  Job job;
  const Generation now{.number = 4, .members = {30, 10, 20}};
  GenerationStore store(job.store, now);
  job.store->set("left/20", "");
  job.store->set("left/99", "");
  CHECK(store.list("left/") == KeyValueStore::Entries{{"left/2", ""}});
  CHECK(store.find("left/2").has_value());
  CHECK_FALSE(store.find("left/0").has_value());
  CHECK_FALSE(store.find("left/3").has_value());
  store.set("state/1", "x");
  CHECK(store.list("state/") == KeyValueStore::Entries{{"state/1", "x"}});
  CHECK(job.store->find("in/4/state/1") == "x");
}

}  // namespace
