// The check accepts every schedule, refuses every broken one, and agrees with a plain replay.
#include <dhp/parallel/schedule_check.hpp>
#include <tests/support/tensors.hpp>

#include <deque>

namespace {

using Kind = Action::Kind;

/// The sentence of the checker, or "".
std::string complaint(const StageLists& lists, int chunks, int micro_batches, int capacity = 1,
                      detail::Pass pass = detail::Pass::training) {
  const auto error = tests::message_of([&] {
    if (pass == detail::Pass::training)
      (void)dhp::check_schedule(lists, chunks, micro_batches, capacity);
    else (void)detail::ScheduleChecker(lists, chunks, micro_batches, capacity, pass).run();
  });
  return error == "no error" ? "" : error;
}

/// Schedules small enough to be broken in every possible place.
struct Case {
  AnySchedule schedule;
  int stages, micro_batches, chunks;
  [[nodiscard]] StageLists lists() const {
    return dhp::all_stages(schedule, stages, micro_batches, chunks);
  }
};
const Case cases[] = {
    {GPipe{}, 3, 4, 1},       {OneForwardOneBackward{}, 4, 5, 1}, {ZeroBubble{}, 3, 5, 1},
    {Interleaved{}, 2, 5, 2}, {Interleaved{}, 3, 4, 3},           {Interleaved{}, 1, 3, 2},
    {GPipe{}, 1, 3, 1},       {ZeroBubbleV{}, 3, 5, 2},           {DualPipeV{}, 2, 4, 2}};

/// Calls body(lists, stage, position) for a fresh copy of the lists at each action.
template <class Body>
void at_each_action(const Case& of, Body body) {
  const auto valid = of.lists();
  for (std::size_t stage = 0; stage < valid.size(); ++stage)
    for (std::size_t at = 0; at < valid[stage].size(); ++at) {
      auto lists = valid;
      body(lists, stage, static_cast<std::ptrdiff_t>(at));
    }
}

TEST_CASE("schedule_check: every schedule is right with one message per edge") {
  for (int stages = 1; stages <= 8; ++stages)
    for (int m = 0; m <= 17; ++m)
      for (const auto& schedule : dhp::built_in_schedules())
        for (int chunks = 1; chunks <= 4; ++chunks) {
          if (schedule.needed_chunks().value_or(chunks) != chunks) continue;
          const auto lists = dhp::all_stages(schedule, stages, m, chunks);
          for (const int capacity : {1, 2, 5}) CHECK(complaint(lists, chunks, m, capacity) == "");
        }
}

TEST_CASE("schedule_check: evaluation is right with one message per edge") {
  for (int stages = 1; stages <= 8; ++stages)
    for (int m = 0; m <= 17; ++m)
      for (int chunks = 1; chunks <= 4; ++chunks)
        for (const bool v_shaped : {false, chunks == 2}) {
          const dhp::detail::ForwardOnly forwards{v_shaped};
          const auto lists = dhp::all_stages(forwards, stages, m, chunks);
          CHECK(complaint(lists, chunks, m, 1, detail::Pass::evaluation) == "");
          if (m > 0) CHECK(has(complaint(lists, chunks, m), "without the backward of"));
        }
}

TEST_CASE("schedule_check: the micro-batches in flight are known") {
  for (int p = 1; p <= 8; ++p)
    for (int m = 0; m <= 17; ++m) {
      const auto gpipe = dhp::check_schedule(dhp::all_stages(dhp::GPipe{}, p, m), 1, m, 1);
      const auto plain =
          dhp::check_schedule(dhp::all_stages(dhp::OneForwardOneBackward{}, p, m), 1, m, 1);
      const auto zero = dhp::check_schedule(dhp::all_stages(dhp::ZeroBubble{}, p, m), 1, m, 1);
      for (int stage = 0; stage < p; ++stage) {
        const auto s = static_cast<std::size_t>(stage);
        CHECK(gpipe.max_until_weight_gradient[s] == m);
        CHECK(plain.max_until_weight_gradient[s] == std::min(m, p - stage));
        CHECK(zero.max_until_weight_gradient[s] == std::min(m, p));
      }
      for (const auto& schedule : {AnySchedule(ZeroBubbleV{}), AnySchedule(DualPipeV{})}) {
        const auto v = dhp::check_schedule(dhp::all_stages(schedule, p, m), 2, m, 1);
        const int most = 2 * p + (schedule.name() == DualPipeV::name ? 1 : 0);
        for (const int held : v.max_until_weight_gradient) {
          CHECK(held <= most);
          if (m >= 2 * p) CHECK(held == most);
        }
      }
      for (int v = 2; v <= 4; ++v) {
        const auto lists = dhp::all_stages(dhp::Interleaved{}, p, m, v);
        const auto report = dhp::check_schedule(lists, v, m, 1);
        for (int stage = 0; stage < p; ++stage) {
          const int most = report.max_until_weight_gradient[static_cast<std::size_t>(stage)];
          const int promised = 2 * (p - stage) - 1 + (v - 1) * p;
          CHECK(most <= promised);
          if (m % p == 0) CHECK(most == std::min(v * m, promised));
        }
      }
    }
}

TEST_CASE("schedule_check: the most messages on an edge are known, for stages of any speed") {
  const auto most = [](const AnySchedule& schedule, int stages, int m, int capacity) {
    return dhp::check_schedule(dhp::all_stages(schedule, stages, m), 1, m, capacity).max_messages;
  };
  CHECK(most(GPipe{}, 1, 6, 100) == 0);
  CHECK(most(GPipe{}, 2, 6, 100) == 6);  // all forwards before the last stage begins
  CHECK(most(GPipe{}, 2, 6, 4) == 4);
  CHECK(most(GPipe{}, 2, 6, 1) == 1);
  CHECK(most(OneForwardOneBackward{}, 4, 16, 100) == 4);
  CHECK(most(ZeroBubble{}, 4, 16, 100) == 4);
  // Before a slow stage 1 begins, stage 0 sends all activations that it may send before its first gradient.
  CHECK(most(OneForwardOneBackward{}, 3, 16, 100) == 3);
  // In evaluation, all messages may wait at a slow stage, even at the last.
  for (const int stages : {2, 3}) {
    const auto lists = dhp::all_stages(dhp::detail::ForwardOnly{}, stages, 6);
    CHECK(detail::ScheduleChecker(lists, 1, 6, 100, detail::Pass::evaluation).run().max_messages ==
          6);
  }
}

TEST_CASE("schedule_check: a missing action is found") {
  for (const auto& of : cases)
    at_each_action(of, [&](StageLists& lists, std::size_t stage, std::ptrdiff_t at) {
      const auto dropped = lists[stage][static_cast<std::size_t>(at)];
      lists[stage].erase(lists[stage].begin() + at);
      const auto error = complaint(lists, of.chunks, of.micro_batches, 9);
      CHECK(has(error, dhp::concat("stage ", stage)));
      CHECK(has(error, dhp::concat("of micro-batch ", dropped.micro_batch)));
    });
  auto lists = dhp::all_stages(dhp::ZeroBubble{}, 3, 4);
  REQUIRE(lists[1].back() == Action{Kind::backward_weight, 0, 3});
  lists[1].pop_back();
  CHECK(complaint(lists, 1, 4) ==
        "schedule: stage 1 comes to the end of its list, position 11, without the backward_weight "
        "of micro-batch 3 in chunk 0");
}

TEST_CASE("schedule_check: a duplicate action is found") {
  for (const auto& of : cases)
    at_each_action(of, [&](StageLists& lists, std::size_t stage, std::ptrdiff_t at) {
      lists[stage].insert(lists[stage].begin() + at, lists[stage][static_cast<std::size_t>(at)]);
      CHECK(complaint(lists, of.chunks, of.micro_batches, 9) ==
            dhp::concat("schedule: stage ", stage, ", position ", at + 1, " (",
                        lists[stage][static_cast<std::size_t>(at)],
                        ") does again what was done before"));
    });
}

TEST_CASE("schedule_check: a wrong micro-batch, chunk or kind is found") {
  for (const auto& of : cases)
    at_each_action(of, [&](StageLists& lists, std::size_t stage, std::ptrdiff_t position) {
      auto& action = lists[stage][static_cast<std::size_t>(position)];
      const auto original = action;
      for (const int m : {-1, (original.micro_batch + 1) % of.micro_batches, of.micro_batches}) {
        action.micro_batch = m;
        CHECK(complaint(lists, of.chunks, of.micro_batches, 9) != "");
        action = original;
      }
      for (const int chunk : {-1, (original.chunk + 1) % of.chunks, of.chunks}) {
        action.chunk = chunk;
        if (action != original) CHECK(complaint(lists, of.chunks, of.micro_batches, 9) != "");
        action = original;
      }
      for (const int kind : {-1, 0, 1, 2, 3, 4}) {
        action.kind = static_cast<Kind>(kind);
        if (action != original) CHECK(complaint(lists, of.chunks, of.micro_batches, 9) != "");
        action = original;
      }
    });
}

TEST_CASE("schedule_check: two actions in the wrong order are found") {
  const auto swapped = [](StageLists lists, std::size_t stage, std::size_t one, std::size_t two) {
    std::swap(lists[stage][one], lists[stage][two]);
    return lists;
  };
  const auto plain = dhp::all_stages(dhp::OneForwardOneBackward{}, 3, 4);
  // stage 2: F0 B0 F1 B1 ...
  CHECK(complaint(swapped(plain, 2, 0, 1), 1, 4) ==
        "schedule: stage 2, position 0 (backward of micro-batch 0 in chunk 0) comes before its "
        "forward");
  // stage 0: F0 F1 F2 B0 ...; after the swap it sends in another order than stage 1 receives.
  CHECK(complaint(swapped(plain, 0, 0, 1), 1, 4, 9) ==
        "schedule: stage 1, position 0 (forward of micro-batch 0 in chunk 0) receives what stage "
        "0, position 0 (forward of micro-batch 1 in chunk 0) sends for part 1");
  const auto zero = dhp::all_stages(dhp::ZeroBubble{}, 3, 4);
  // stage 0: F0 F1 F2 B0 W0 ...
  CHECK(complaint(swapped(zero, 0, 3, 4), 1, 4) ==
        "schedule: stage 0, position 3 (backward_weight of micro-batch 0 in chunk 0) comes before "
        "its backward_input");
  // One stage: F0 F0b B0b ...; its chunks exchange no messages.
  const auto local = dhp::all_stages(dhp::Interleaved{}, 1, 2, 2);
  CHECK(complaint(swapped(local, 0, 0, 1), 2, 2) ==
        "schedule: stage 0, position 0 (forward of micro-batch 0 in chunk 1) comes before that of "
        "chunk 0");
  CHECK(complaint({{{Kind::forward, 0, 0},
                    {Kind::forward, 1, 0},
                    {Kind::backward, 0, 0},
                    {Kind::backward, 1, 0}}},
                  2, 1) ==
        "schedule: stage 0, position 2 (backward of micro-batch 0 in chunk 0) comes before that of "
        "chunk 1");
  // Swaps any two sends in the same direction, on any stage.
  for (const auto& of : cases) {
    if (of.stages == 1) continue;
    const auto lists = of.lists();
    for (std::size_t stage = 0; stage < lists.size(); ++stage)
      for (std::size_t one = 0; one < lists[stage].size(); ++one)
        for (std::size_t two = 0; two < one; ++two)
          if (lists[stage][one].kind == lists[stage][two].kind &&
              lists[stage][one].kind != Kind::backward_weight &&
              (!lists.v_shaped || lists[stage][one].chunk == lists[stage][two].chunk))
            CHECK(complaint(swapped(lists, stage, one, two), of.chunks, of.micro_batches, 9) != "");
  }
}

TEST_CASE("schedule_check: a deadlock names the stages and their waits") {
  // Stage 0 waits for a gradient before its second forward, stage 1 for a second activation before its backward.
  StageLists lists{{{Kind::forward, 0, 0},
                    {Kind::backward, 0, 0},
                    {Kind::forward, 0, 1},
                    {Kind::backward, 0, 1}},
                   {{Kind::forward, 0, 0},
                    {Kind::forward, 0, 1},
                    {Kind::backward, 0, 0},
                    {Kind::backward, 0, 1}}};
  CHECK(complaint(lists, 1, 2, 9) ==
        "schedule: with 9 messages per edge these wait forever: stage 0, position 1 (backward of "
        "micro-batch 0 in chunk 0) for a message of stage 1; stage 1, position 1 (forward of "
        "micro-batch 1 in chunk 0) for a message of stage 0");
}

TEST_CASE("schedule_check: lists that need more messages per edge than allowed are refused") {
  // Two chunks on two stages: stage 0 receives messages of stage 1 only after all forwards of chunk 0.
  StageLists lists(2);
  for (auto& list : lists)
    for (const int chunk : {0, 1})
      for (int m = 0; m < 6; ++m) list.push_back({Kind::forward, chunk, m});
  CHECK(
      has(complaint(lists, 2, 6, 1, detail::Pass::evaluation),
          "stage 0, position 3 (forward of micro-batch 3 in chunk 0) for a full edge to stage 1"));
  CHECK(complaint(lists, 2, 6, 2, detail::Pass::evaluation) != "");
  CHECK(complaint(lists, 2, 6, 3, detail::Pass::evaluation) == "");
}

TEST_CASE("schedule_check: numbers that do not fit the lists are refused") {
  const auto lists = dhp::all_stages(dhp::GPipe{}, 2, 2);
  CHECK(complaint(lists, 1, 2) == "");
  CHECK(complaint(lists, 1, 2, 0) == "schedule: an edge holds at least 1 message, not 0");
  CHECK(complaint({}, 1, 2) == "schedule: there are no stages");
  CHECK(complaint(lists, 0, 2) != "");
  CHECK(complaint(lists, 1, -1) != "");
  CHECK(complaint(lists, 1, 3) != "");
  CHECK(complaint(lists, 2, 2) != "");
  CHECK(complaint(lists, 1, 1) != "");
  CHECK(complaint(lists, 1 << 30, 1 << 30) ==
        "schedule: stage 0 has only 4 actions for 1073741824 micro-batches in 1073741824 chunks");
  CHECK(complaint(lists, 1, 2, 1, detail::Pass::evaluation) ==
        "schedule: stage 0, position 2 (backward of micro-batch 0 in chunk 0) is no forward, but "
        "evaluation has no others");
}

/// An independent check: replays actions and messages of the stages in random order.
bool replays(const StageLists& lists, int chunks, int micro_batches, int capacity, auto& random) {
  struct Stage {
    std::size_t next = 0;
    bool sending = false;
    std::set<std::tuple<char, int, int>> done{};
  };
  const int stages = static_cast<int>(lists.size());
  const int last = stages * chunks - 1;
  std::vector<Stage> at(lists.size());
  std::map<std::tuple<bool, int, int>, std::deque<std::pair<int, int>>> edges;
  for (int failures = 0; failures < 40 * stages;) {
    const int s = static_cast<int>(random() % lists.size());
    auto& stage = at[static_cast<std::size_t>(s)];
    const auto& list = lists[static_cast<std::size_t>(s)];
    ++failures;
    if (!stage.sending && stage.next == list.size()) continue;
    const auto& action = list[stage.sending ? stage.next - 1 : stage.next];
    const bool forward = action.kind == Kind::forward;
    const bool back = lists.v_shaped && action.chunk == 1;
    const int part = back ? last - s : action.chunk * stages + s;
    const bool gives = action.kind != Kind::backward_weight;
    const auto stage_of = [&](int of) {
      if (of < 0 || of > last) return s;
      return lists.v_shaped && of >= stages ? last - of : of % stages;
    };
    const int from = stage_of(forward ? part - 1 : part + 1);
    const int to = stage_of(forward ? part + 1 : part - 1);
    if (!stage.sending) {
      if (gives && from != s) {
        auto& edge = edges[{forward, from, s}];
        if (edge.empty()) continue;
        if (edge.front() != std::pair{part, action.micro_batch}) return false;
        edge.pop_front();
      }
      const auto once = [&](char what) {
        return stage.done.insert({what, action.chunk, action.micro_batch}).second;
      };
      const auto did = [&](char what, int chunk) {
        return stage.done.contains({what, chunk, action.micro_batch});
      };
      const int c = action.chunk;
      if (forward && !once('F')) return false;
      const bool here = from == s && part != (forward ? 0 : last);  // without a message
      if (forward && here && !did('F', c - 1)) return false;
      if (!forward && action.kind != Kind::backward_weight) {
        if (!did('F', c) || !once('B')) return false;
        if (here && !did('B', c + 1)) return false;
        if (action.kind == Kind::backward && !once('W')) return false;
      }
      if (action.kind == Kind::backward_weight && (!did('B', c) || !once('W'))) return false;
      ++stage.next;
      failures = 0;
      stage.sending = gives && to != s;
      continue;
    }
    auto& edge = edges[{forward, s, to}];
    if (static_cast<int>(edge.size()) == capacity) continue;
    edge.push_back({forward ? part + 1 : part - 1, action.micro_batch});
    stage.sending = false;
    failures = 0;
  }
  for (std::size_t s = 0; s < lists.size(); ++s)
    if (at[s].sending || at[s].next < lists[s].size() ||
        at[s].done.size() != static_cast<std::size_t>(3 * chunks * micro_batches))
      return false;
  return true;
}

TEST_CASE("schedule_check: agrees with a plain replay about lists with moved actions") {
  std::uint64_t state = 7;
  const auto random = [&] {  // Knuth's linear congruential generator
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::size_t>(state >> 33);
  };
  int accepted = 0;
  int rejected = 0;
  for (int round = 0; round < 150; ++round)
    for (const auto& of : cases) {
      auto lists = of.lists();
      auto& list = lists[random() % lists.size()];
      const auto from = random() % list.size();
      const auto action = list[from];
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(from));
      const auto to = std::min(list.size(), from + random() % 5 - std::min<std::size_t>(from, 2));
      list.insert(list.begin() + static_cast<std::ptrdiff_t>(to), action);
      const int capacity = 1 + static_cast<int>(random() % 2);
      const auto error = complaint(lists, of.chunks, of.micro_batches, capacity);
      CHECK_MESSAGE((error == "") == replays(lists, of.chunks, of.micro_batches, capacity, random),
                    error);
      ++(error.empty() ? accepted : rejected);
    }
  CHECK(accepted > 100);  // both answers occur
  CHECK(rejected > 100);
}

}  // namespace
