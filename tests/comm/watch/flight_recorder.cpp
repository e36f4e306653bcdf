#include <dhp/comm/watch/flight_recorder.hpp>
#include <dhp/comm/watch/rank_state.hpp>
#include <tests/comm/ranks.hpp>

namespace {

using Open = FlightRecorder::Open;

FlightRecord record(const std::string& text) { return {.text = text}; }

TEST_CASE("flight recorder: a call is open, and then the last ended one") {
  FlightRecorder recorder;
  {
    const Open outer(recorder, record("outer"));
    {
      const Open inner(recorder, record("inner"));
      const auto open = recorder.contents().under_way;
      REQUIRE(open.size() == 2);
      CHECK(open[0].number == 1);
      CHECK(open[0].under_way());
      CHECK(open[1].description() == "inner");
    }
    const auto contents = recorder.contents();
    CHECK(contents.under_way.size() == 1);
    REQUIRE(contents.ended.size() == 1);
    CHECK(contents.ended[0].number == 2);
    CHECK(!contents.ended[0].under_way());
    CHECK(contents.ended[0].end_s >= contents.ended[0].start_s);
  }
  CHECK(recorder.contents().ended.back().number == 1);
  CHECK(recorder.contents().under_way.empty());
  CHECK(recorder.calls() == 2);
}

TEST_CASE("flight recorder: an exception ends the call") {
  FlightRecorder recorder;
  try {
    const Open call(recorder, record("bad"));
    fail("no");
  } catch (const Error&) {}
  // A call in a destructor during another exception does not count as failed.
  struct AtEnd {
    FlightRecorder& recorder;
    ~AtEnd() { const Open call(recorder, record("good")); }
  };
  try {
    const AtEnd leaves{recorder};
    fail("another reason");
  } catch (const Error&) {}
  const auto contents = recorder.contents();
  CHECK(contents.under_way.empty());
  REQUIRE(contents.ended.size() == 2);
  CHECK(contents.ended[0].failed);
  CHECK(!contents.ended[1].failed);
}

TEST_CASE("flight recorder: a refused call is not counted, as the other ranks have not seen it") {
  for (const auto kind : {CallKind::recv, CallKind::all_reduce}) {
    const auto recorder = std::make_shared<FlightRecorder>();
    dhp::detail::GroupRecorder world(recorder, 1, 2);
    const CommCall call{.kind = kind, .count = 3, .other = 0};
    try {
      const auto refused = world.begin(call);
      fail("not so");
    } catch (const Error&) {}
    dhp::detail::RankState state;
    state.read(*recorder);
    CHECK(state.reached.empty());
    const auto next = world.begin(call);
    CHECK(next.record().at == 1);
    state.read(*recorder);
    CHECK(state.reached.at(next.record().series()) == 1);
  }
}

TEST_CASE("flight recorder: keeps the last calls up to its capacity") {
  FlightRecorder recorder(3);
  for (int call = 0; call < 10; ++call) Open(recorder, record("call"));
  const auto ended = recorder.contents().ended;
  REQUIRE(ended.size() == 3);
  CHECK(ended.front().number == 8);
  CHECK(ended.back().number == 10);
}

TEST_CASE("flight recorder: all ranks of a call, and no other call, have its key") {
  const auto recorder = std::make_shared<FlightRecorder>();
  dhp::detail::GroupRecorder world(recorder, 1, 4);
  auto part = world.of_part({3, 1});
  auto again = world.of_part({1});
  const CommCall sum{.kind = CallKind::all_reduce, .count = 5, .other = 0};
  const CommCall sends{.kind = CallKind::send, .count = 3, .other = 0};
  { const auto a = world.begin(sum), b = part.begin(sum, 2), c = part.begin(sends); }
  { const auto a = world.begin(sum), b = again.begin(sum), c = part.begin(sends); }
  std::vector<std::string> keys;
  for (const auto& each : recorder->contents().ended) keys.push_back(each.key());
  std::sort(keys.begin(), keys.end());
  CHECK(keys == std::vector<std::string>{"world#1", "world#2", "world.1@3#1", "world.1@3:1>3#1",
                                         "world.1@3:1>3#2", "world.2@1#1"});
  for (const auto& each : recorder->contents().ended) {
    if (each.key() == "world.1@3#1")
      CHECK(each.description() == "all_reduce of 5 f32 (sum) and 2 more of a recorded step");
    if (each.key() == "world#1") CHECK(each.needs() == std::vector<int>{0, 2, 3});
    if (each.key() == "world.1@3:1>3#1") CHECK(each.needs() == std::vector<int>{3});
  }
}

}  // namespace
