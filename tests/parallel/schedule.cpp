// The actions of each schedule.
#include <dhp/parallel/schedule.hpp>
#include <tests/support/tensors.hpp>

namespace {

using Kind = Action::Kind;

const auto all_schedules = dhp::built_in_schedules();

/// A stage's list in short, such as "F0 B0b W0b"; chunks after the first add a letter.
std::string brief(const std::vector<Action>& list) {
  std::string out;
  for (const auto& action : list) {
    const char* names[] = {"F", "B", "B", "W"};
    out += dhp::concat(out.empty() ? "" : " ", names[static_cast<int>(action.kind)],
                       action.micro_batch);
    if (action.chunk > 0) out += static_cast<char>('a' + action.chunk);
  }
  return out;
}

TEST_CASE("schedule: gpipe does all forwards, then all backwards") {
  for (int stage = 0; stage < 3; ++stage)
    CHECK(brief(dhp::GPipe{}.actions(stage, 3, 4)) == "F0 F1 F2 F3 B0 B1 B2 B3");
}

TEST_CASE("schedule: 1f1b warms up with one forward for each later stage") {
  const dhp::OneForwardOneBackward schedule;
  CHECK(brief(schedule.actions(0, 3, 4)) == "F0 F1 F2 B0 F3 B1 B2 B3");
  CHECK(brief(schedule.actions(1, 3, 4)) == "F0 F1 B0 F2 B1 F3 B2 B3");
  CHECK(brief(schedule.actions(2, 3, 4)) == "F0 B0 F1 B1 F2 B2 F3 B3");
  CHECK(brief(schedule.actions(0, 8, 2)) == "F0 F1 B0 B1");
}

TEST_CASE("schedule: zero-bubble delays weight gradients by the stage number") {
  const dhp::ZeroBubble schedule;
  CHECK(brief(schedule.actions(0, 3, 4)) == "F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3");
  CHECK(brief(schedule.actions(1, 3, 4)) == "F0 F1 B0 F2 B1 W0 F3 B2 W1 B3 W2 W3");
  CHECK(brief(schedule.actions(2, 3, 4)) == "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3");
  for (const auto& action : schedule.actions(1, 3, 4)) CHECK(action.kind != Kind::backward);
}

TEST_CASE("schedule: interleaved sends groups of micro-batches through one chunk after another") {
  const dhp::Interleaved schedule;
  CHECK(brief(schedule.actions(0, 2, 2, 2)) == "F0 F1 F0b F1b B0b B1b B0 B1");
  CHECK(brief(schedule.actions(1, 2, 2, 2)) == "F0 F1 F0b B0b F1b B1b B0 B1");
  CHECK(brief(schedule.actions(1, 2, 4, 2)) ==
        "F0 F1 F0b B0b F1b B1b F2 B0 F3 B1 F2b B2b F3b B3b B2 B3");
  // The last group may be short: the same list without the micro-batches that do not exist.
  CHECK(brief(schedule.actions(1, 2, 3, 2)) == "F0 F1 F0b B0b F1b B1b F2 B0 B1 F2b B2b B2");
  CHECK(brief(schedule.actions(3, 4, 1, 2)) == "F0 F0b B0b B0");
  CHECK(schedule.actions(1, 3, 4, 1) == dhp::OneForwardOneBackward{}.actions(1, 3, 4));
}

TEST_CASE("schedule: zero-bubble-v continues where it turns, and defers weight gradients") {
  const dhp::ZeroBubbleV schedule;
  CHECK(brief(schedule.actions(0, 2, 3)) ==
        "F0 F1 F2 F0b B0b W0b F1b B1b W1b B0 W0 F2b B2b W2b B1 W1 B2 W2");
  CHECK(brief(schedule.actions(1, 2, 3)) ==
        "F0 F0b F1 F1b B0b W0b F2 B0 W0 F2b B1b W1b B1 B2b B2 W1 W2b W2");
  CHECK(brief(schedule.actions(1, 2, 1)) == "F0 F0b B0b W0b B0 W0");
}

TEST_CASE("schedule: dual-pipe-v alternates forwards of one chunk with backwards of the other") {
  const dhp::DualPipeV schedule;
  CHECK(brief(schedule.actions(0, 2, 4)) ==
        "F0 F1 F2 F0b B0b W0b F1b F3 B1b F2b B0 B2b F3b B1 B3b B2 W2 B3 W3");
  CHECK(brief(schedule.actions(1, 2, 1)) == "F0 F0b B0b B0");
}

TEST_CASE("schedule: evaluation has only forwards") {
  const dhp::detail::ForwardOnly forwards, v{true};
  CHECK(brief(forwards.actions(1, 2, 3)) == "F0 F1 F2");
  CHECK(brief(forwards.actions(0, 2, 3, 2)) == "F0 F1 F0b F1b F2 F2b");
  CHECK(brief(forwards.actions(0, 1, 2, 3)) == "F0 F0b F0c F1 F1b F1c");
  CHECK(forwards.actions(2, 3, 0, 2).empty());
  CHECK(brief(v.actions(0, 2, 3, 2)) == "F0 F1 F0b F2 F1b F2b");
}

TEST_CASE("schedule: names are found, and an unknown name is refused with the list") {
  for (const auto& schedule : all_schedules) {
    const auto found = dhp::parse_schedule(schedule.name());
    CHECK(found.name() == schedule.name());
    CHECK(found.actions(1, 3, 4) == schedule.actions(1, 3, 4));
  }
  CHECK(dhp::parse_schedule("1f1b").name() == dhp::OneForwardOneBackward::name);
  CHECK(dhp::parse_schedule("zero-bubble").name() == dhp::ZeroBubble::name);
  for (const char* wrong : {"", "1F1B", "gpipe ", "zero_bubble"}) {
    const auto message = message_of([&] { (void)dhp::parse_schedule(wrong); });
    CHECK(message.starts_with(dhp::concat("there is no schedule \"", wrong, "\"; choose one of ")));
    for (const auto& schedule : all_schedules) CHECK(tests::has(message, schedule.name()));
  }
}

TEST_CASE("schedule: impossible stages, numbers and chunks are refused in a sentence") {
  for (const auto& schedule : all_schedules) {
    for (const int stage : {-1, 3})
      CHECK(tests::has(message_of([&] { (void)schedule.actions(stage, 3, 4); }),
                       dhp::concat("there is no stage ", stage, " of 3")));
    CHECK_THROWS_AS((void)schedule.actions(0, 0, 4), dhp::Error);
    CHECK_THROWS_AS((void)schedule.actions(0, 2, -1), dhp::Error);
    CHECK_THROWS_AS((void)schedule.actions(0, 2, 4, 0), dhp::Error);
    if (schedule.name() == dhp::Interleaved::name) continue;
    CHECK(message_of([&] { (void)schedule.actions(0, 2, 4, 3); }) ==
          dhp::concat("schedule ", schedule.name(), " keeps ",
                      schedule.v_shaped() ? "2 chunks" : "1 chunk",
                      " per stage, not 3; set chunks to that, or choose the schedule interleaved"));
  }
  CHECK_THROWS_AS((void)dhp::detail::ForwardOnly{}.actions(2, 2, 4, 1), dhp::Error);
}

/// A user's schedule: GPipe with the backwards in reverse order.
struct LastFirst {
  static constexpr const char* name = "last-first";
  static std::vector<Action> actions(int, int, int micro_batches, int) {
    std::vector<Action> list;
    for (int m = 0; m < micro_batches; ++m) list.push_back({Kind::forward, 0, m});
    for (int m = micro_batches; m-- > 0;) list.push_back({Kind::backward, 0, m});
    return list;
  }
};
struct Nameless {
  static std::vector<Action> actions(int, int, int, int) { return {}; }
};
static_assert(dhp::Schedule<LastFirst> && !dhp::Schedule<Nameless>);

TEST_CASE("schedule: lists of all stages come from a custom type or function, too") {
  const AnySchedule function("mine", LastFirst::actions);
  CHECK(function.name() == "mine");
  for (const auto& schedule : {AnySchedule(LastFirst{}), function}) {
    const auto lists = dhp::all_stages(schedule, 2, 2);
    REQUIRE(lists.size() == 2);
    CHECK(brief(lists[1]) == "F0 F1 B1 B0");
  }
}

}  // namespace
