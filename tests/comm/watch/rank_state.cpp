#include <dhp/comm/watch/rank_state.hpp>
#include <tests/comm/ranks.hpp>

using dhp::detail::GroupRecorder, dhp::detail::RankState;

TEST_CASE("rank state: a written state is read back") {
  RankState state;
  state.beat = 12;
  state.name = "host node7, process 4711";
  state.finished = true;
  state.ended = true;
  state.failed = "the disk is full";
  state.lost = {3, 5};
  state.limit = {34, "for a step, 10 times its median"};
  state.reached = {{"world", 12}, {"world.1@0:0>1", 3}};
  state.last = "barrier at a.cpp:3";
  state.last_age_s = 0.125;
  state.under_way = {
      {"world", 12, "all_reduce of 5 f32 (sum)", "all_reduce of 5 f32 (sum)", "b.cpp:9", 2.5, {1}},
      {"world.1@0:0>1", 3, "message of 3 f32", "send of a message of 3 f32", "c.cpp:1", 0, {}}};
  state.sent = {{"world:0>1", 5, "message of 2 f32", "send of a message of 2 f32", "d.cpp:1"}};
  const auto text = state.written();
  const auto read = RankState::parsed(text);
  REQUIRE(read.has_value());
  CHECK(read->written() == text);
  CHECK(read->beat == 12);
  CHECK(read->name == state.name);
  CHECK(read->finished);
  CHECK(read->ended);
  CHECK(read->failed == state.failed);
  CHECK(read->lost == state.lost);
  CHECK(read->limit.seconds == 34);
  CHECK(read->limit.why == state.limit.why);
  CHECK(read->reached == state.reached);
  CHECK(read->last == state.last);
  CHECK(read->last_age_s == 0.125);
  REQUIRE(read->under_way.size() == 2);
  CHECK(read->under_way[0].key() == "world#12");
  CHECK(read->under_way[0].needs == std::vector<int>{1});
  CHECK(read->under_way[1].is_send());
  REQUIRE(read->sent.size() == 1);
  CHECK(read->sent[0].key() == "world:0>1#5");
  CHECK(to_text(read->under_way[1]) == "send of a message of 3 f32 at c.cpp:1");
}

TEST_CASE("rank state: malformed text is refused and does not crash") {
  RandomStream dice{.seed = 3};
  RankState whole;
  whole.under_way = {{"k", 7, "w", "s", "a.cpp:1", 1, {2}}};
  whole.reached = {{"k", 7}};
  const auto good = whole.written();
  for (std::size_t size = 0; size < good.size(); ++size)
    CHECK(!RankState::parsed(std::string_view(good).substr(0, size)).has_value());
  CHECK(!RankState::parsed(good + "x").has_value());
  for (std::uint64_t round = 0; round < 20000; ++round) {
    auto text = good;
    text[static_cast<std::size_t>(dice.below(static_cast<std::uint32_t>(text.size()), 2 * round))] =
        static_cast<char>(dice.below(256, 2 * round + 1));
    (void)RankState::parsed(text);
  }
}

TEST_CASE("rank state: a state holds the recorder's open, reached and sent calls") {
  const auto recorder = std::make_shared<FlightRecorder>();
  GroupRecorder group(recorder, 2, 5);
  const CommCall barrier{.kind = CallKind::barrier, .where = CallSite::current()};
  { const auto ended = group.begin(barrier); }
  for (int message = 0; message < 20; ++message)
    const auto sent = group.begin({.kind = CallKind::send, .count = message, .other = 1});
  const auto open = group.begin(barrier);
  const auto message = group.begin({.kind = CallKind::recv, .count = 3, .other = 4});
  const FlightRecorder::Open other(*recorder, {.text = "waiting for a key"});
  RankState state;
  state.read(*recorder);
  REQUIRE(state.under_way.size() == 3);
  CHECK(state.under_way[0].key() == "world#2");
  CHECK(state.under_way[0].needs == std::vector<int>{0, 1, 3, 4});
  CHECK(state.under_way[1].key() == "world:4>2#1");
  CHECK(state.under_way[1].needs == std::vector<int>{4});
  CHECK(to_text(state.under_way[2]) == "waiting for a key");
  CHECK(state.reached ==
        std::map<std::string, std::uint64_t>{{"world", 2}, {"world:2>1", 20}, {"world:4>2", 1}});
  CHECK(state.sent.size() == 16);
  CHECK(state.sent[0].agreed == "message of 19 f32");
  CHECK(has(state.last, "send of a message of 19 f32 at "));
  CHECK(state.busy() == &state.under_way[0]);
  state.read(*recorder, recorder->calls() - 1);  // skips the calls of an earlier world
  CHECK(state.under_way.size() == 1);
  CHECK(state.reached.empty());
  CHECK(state.sent.empty());
}

TEST_CASE("rank state: a call counts as reached only once its device has started it") {
  const auto recorder = std::make_shared<FlightRecorder>();
  GroupRecorder group(recorder, 0, 2);
  { const auto ended = group.begin({}); }
  auto call = group.begin({});
  const auto read = [&] {
    sleep_ms(20);
    RankState state;
    state.read(*recorder);
    return concat(state.reached["world"], state.under_way.front().age_s >= 0.02 ? " waits" : "");
  };
  CHECK(read() == "2 waits");  // a host's call
  call.on_device(false);
  CHECK(read() == "1");
  call.on_device(true);
  CHECK(read() == "2 waits");
}
