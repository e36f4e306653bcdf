// Known durations and exact pictures of the schedules, and the lists and costs that a simulation refuses.
#include <dhp/parallel/schedule_time.hpp>
#include <tests/support/test.hpp>

namespace {

using Kind = Action::Kind;

double slots(const AnySchedule& schedule, int stages, int micro_batches, int chunks,
             const dhp::ActionCosts& costs) {
  return dhp::simulate(dhp::all_stages(schedule, stages, micro_batches, chunks), costs).makespan;
}

constexpr dhp::ActionCosts whole_backward_is_one{1, 0.5, 0.5};
constexpr dhp::ActionCosts all_one{1, 1, 1};

TEST_CASE("schedule_time: each part of the model may have costs of its own") {
  // The second of two stages is twice as slow. It works without a gap after its first message.
  const std::vector<dhp::ActionCosts> costs{{1, 1, 1}, {2, 2, 2}};
  const auto times = dhp::simulate(dhp::all_stages(GPipe{}, 2, 3), costs);
  CHECK(times.start[1] == std::vector<double>{1, 3, 5, 7, 11, 15});
  CHECK(times.makespan == 1 + 3 * 6 + 2);
  CHECK(times.idle_share[0] == Approx(1 - 9.0 / 21));
  // Part 2 is chunk 1 of stage 0.
  const std::vector<dhp::ActionCosts> of_chunks{{1, 1, 1}, {1, 1, 1}, {5, 1, 1}, {1, 1, 1}};
  const auto lists = dhp::all_stages(Interleaved{}, 2, 1, 2);
  CHECK(dhp::simulate(lists, of_chunks).makespan == dhp::simulate(lists).makespan + 4);
  CHECK_THROWS_AS(dhp::simulate(lists, std::vector<dhp::ActionCosts>(3)), dhp::Error);
}

TEST_CASE("schedule_time: a stage sends one message at a time") {
  const auto times = dhp::simulate(dhp::all_stages(GPipe{}, 2, 2), {{1, 1, 1}}, 3);
  CHECK(times.start[1] == std::vector<double>{4, 7, 8, 10});
  CHECK(times.start[0] == std::vector<double>{0, 1, 13, 16});
}

TEST_CASE("schedule_time: m micro-batches over s stages take 2(m+s-1) in gpipe and 1f1b") {
  for (const auto& schedule : {AnySchedule(GPipe{}), AnySchedule(OneForwardOneBackward{})})
    for (int s = 1; s <= 8; ++s)
      for (int m = 1; m <= 17; ++m) {
        CHECK(slots(schedule, s, m, 1, whole_backward_is_one) == 2 * (m + s - 1));
        CHECK(slots(schedule, s, m, 1, all_one) == 3 * (m + s - 1));
      }
}

TEST_CASE("schedule_time: zero-bubble takes 3m+(s-1) for m >= s, and never more than 1f1b") {
  for (int s = 1; s <= 8; ++s)
    for (int m = 1; m <= 17; ++m) {
      const double taken = slots(ZeroBubble{}, s, m, 1, all_one);
      if (m >= s) CHECK(taken == 3 * m + (s - 1));
      CHECK(taken <= 3 * (m + s - 1));
    }
}

TEST_CASE("schedule_time: in a V stages idle half as long as in zero-bubble, for m >= 2 s") {
  for (const auto& schedule : {AnySchedule(ZeroBubbleV{}), AnySchedule(DualPipeV{})})
    for (int s = 1; s <= 8; ++s)
      for (int m = 1; m <= 17; ++m) {
        const double taken = slots(schedule, s, m, 2, all_one);  // unit: half a stage's pass
        if (m >= 2 * s) CHECK(taken == 6 * m + (s - 1));
        CHECK(taken <= 6 * (m + s - 1));
      }
}

TEST_CASE("schedule_time: v chunks divide the idle time of 1f1b by v if s divides m") {
  for (int s = 1; s <= 8; ++s)
    for (int groups = 1; groups <= 4; ++groups)
      for (int v = 1; v <= 4; ++v) {
        const int m = s * groups;  // a chunk costs 1/v of a stage: count in v-ths of a slot
        CHECK(slots(Interleaved{}, s, m, v, whole_backward_is_one) == 2 * (m * v + s - 1));
        CHECK(slots(Interleaved{}, s, m, v, all_one) == 3 * (m * v + s - 1));
      }
}

TEST_CASE("schedule_time: starts and idle shares match a case computed by hand") {
  // stage 0 | F0 F1 .  .  B0--- .  B1---
  // stage 1 | .  F0 B0--- F1 B1--- .  .
  const auto times = dhp::simulate(dhp::all_stages(dhp::OneForwardOneBackward{}, 2, 2));
  CHECK(times.start == std::vector<std::vector<double>>{{0, 1, 4, 7}, {1, 2, 4, 5}});
  CHECK(times.end == std::vector<double>{9, 7});
  CHECK(times.makespan == 9);
  CHECK(times.idle_share == std::vector<double>{1 - 6 / 9., 1 - 6 / 9.});
}

TEST_CASE("schedule_time: nothing to do takes no time") {
  const auto times = dhp::simulate(dhp::all_stages(dhp::GPipe{}, 3, 0));
  CHECK(times.makespan == 0);
  CHECK(times.idle_share == std::vector<double>{0, 0, 0});
  CHECK(dhp::simulate({}).makespan == 0);
  CHECK(dhp::simulate(dhp::all_stages(dhp::GPipe{}, 3, 2), {0, 0, 0}).makespan == 0);
}

TEST_CASE("schedule_time: deadlocks, invalid lists and invalid costs are errors") {
  auto lists = dhp::all_stages(dhp::OneForwardOneBackward{}, 2, 2);
  std::swap(lists[0][1], lists[0][2]);  // B0 before F1 is possible
  CHECK_NOTHROW(dhp::simulate(lists));
  std::swap(lists[0][0], lists[0][1]);  // B0 before F0 is not
  CHECK_THROWS_AS(dhp::simulate(lists), dhp::Error);
  const int far = std::numeric_limits<int>::max();
  for (const Action wild : {Action{Kind::forward, 0, far}, Action{Kind::forward, far, 0},
                            Action{Kind::forward, far, far}, Action{Kind::backward, 0, 5},
                            Action{Kind::forward, 0, -1}, Action{Kind::forward, -1, 0}}) {
    auto with = dhp::all_stages(dhp::GPipe{}, 2, 2);
    with[1].push_back(wild);
    CHECK_THROWS_AS(dhp::simulate(with), dhp::Error);
  }
  for (const double cost :
       {-1., std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    CHECK_THROWS_AS(dhp::simulate({}, {cost, 1, 1}), dhp::Error);
}

TEST_CASE("schedule_time: draws schedules") {
  // A whole backward spans two slots.
  CHECK(dhp::draw(dhp::all_stages(dhp::OneForwardOneBackward{}, 2, 4)) ==
        "stage 0 | F0 F1 .  .  B0--- F2 B1--- F3 B2--- .  B3--- | idle 20 %\n"
        "stage 1 | .  F0 B0--- F1 B1--- F2 B2--- F3 B3--- .  .  | idle 20 %\n");
  CHECK(dhp::draw(dhp::all_stages(dhp::ZeroBubble{}, 3, 4)) ==
        "stage 0 | F0 F1 F2 .  .  B0 W0 F3 B1 W1 B2 W2 B3 W3 | idle 14 %\n"
        "stage 1 | .  F0 F1 .  B0 F2 B1 W0 F3 B2 W1 B3 W2 W3 | idle 14 %\n"
        "stage 2 | .  .  F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3 | idle 14 %\n");
  // Chunks have letters.
  CHECK(dhp::draw(dhp::all_stages(dhp::Interleaved{}, 2, 2, 2)) ==
        "stage 0 | F0a F1a F0b F1b .   .   B0b---- .   B1b---- B0a---- B1a---- | idle 20 %\n"
        "stage 1 | .   F0a F1a F0b B0b---- F1b B1b---- B0a---- B1a---- .   .   | idle 20 %\n");
  // Other costs, no micro-batches, no stages.
  CHECK(dhp::draw(dhp::all_stages(dhp::GPipe{}, 2, 1), {2, 1, 1}) ==
        "stage 0 | F0--- .  .  .  .  B0--- | idle 50 %\n"
        "stage 1 | .  .  F0--- B0--- .  .  | idle 50 %\n");
  CHECK(dhp::draw(dhp::all_stages(dhp::GPipe{}, 2, 0)) ==
        "stage 0 | | idle 0 %\nstage 1 | | idle 0 %\n");
  CHECK(dhp::draw({}).empty());
}

TEST_CASE("schedule_time: aligns numbers and stages of two digits") {
  const auto picture = dhp::draw(dhp::all_stages(dhp::GPipe{}, 11, 11));
  const auto line = picture.find('\n') + 1;
  CHECK(picture.size() == 11 * line);
  CHECK(picture.substr(0, 18) == "stage 0  | F0  F1 ");
  for (std::size_t at = 0; at < picture.size(); at += line) {
    CHECK(picture[at + 9] == '|');
    CHECK(picture[at + line - 1] == '\n');
    CHECK(picture[at + line - 12] == '|');
  }
}

TEST_CASE("schedule_time: costs and chunks that cannot be drawn are refused") {
  const auto lists = dhp::all_stages(dhp::GPipe{}, 2, 2);
  for (const double cost : {0., 0.5, 101., -1.})
    CHECK_THROWS_AS(dhp::draw(lists, {1, cost, 1}), dhp::Error);
  CHECK_THROWS_AS(dhp::draw(dhp::all_stages(dhp::Interleaved{}, 2, 2, 27)), dhp::Error);
}

}  // namespace
