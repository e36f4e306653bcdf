// The search for the shortest schedule: its results are proved, run as long as it says, and agree with known lengths.
#include <dhp/parallel/schedule_check.hpp>
#include <dhp/parallel/schedule_time.hpp>
#include <examples/schedules/shortest_schedule.hpp>
#include <tests/support/test.hpp>

#include <set>

namespace {

using examples::ScheduleProblem, examples::ScheduleSearch, examples::ShortestSchedule;

ShortestSchedule found_for(const ScheduleProblem& of, std::optional<int> known = {}) {
  auto found = ScheduleSearch(of, 5).run(known);
  if (!found.length) return found;
  const auto report = dhp::check_schedule(found.lists, of.chunks(), of.micro_batches, 100);
  for (const int held : report.max_until_weight_gradient) CHECK(held <= of.memory);
  const dhp::ActionCosts costs{1.0 * of.forward, 1.0 * of.backward_input, 1.0 * of.backward_weight};
  CHECK(dhp::simulate(found.lists, costs).makespan == *found.length);
  CHECK(*found.length >= found.at_least);
  return found;
}
void is_proven(int length, const ScheduleProblem& of) {
  const auto found = found_for(of);
  CHECK(found.length == length);
  CHECK(found.at_least == length);
}

/// Returns the slots of the shortest schedule, by trying all actions and waits without a bound.
int by_trying_all(const ScheduleProblem& of) {
  // Of each stage: the number of begun forwards (chunk 0, chunk 1), backwards (the same) and weight gradients; how many
  // slots the last action still takes, and its kind.
  using State = std::vector<std::array<int, 7>>;
  const int last = of.parts() - 1;
  const int costs[] = {of.forward, of.forward, of.backward_input, of.backward_input,
                       of.backward_weight};
  const auto stage_of = [&](int part) { return part < of.stages ? part : last - part; };
  const auto done = [&](const State& now, int kind, int part) {
    const auto& stage = now[static_cast<std::size_t>(stage_of(part))];
    const int what = kind + (part < of.stages ? 0 : 1);
    return stage[static_cast<std::size_t>(what)] - (stage[5] > 0 && stage[6] == what ? 1 : 0);
  };
  std::set<State> states{State(static_cast<std::size_t>(of.stages))};
  for (int slots = 0;; ++slots) {
    std::set<State> next;
    for (const auto& now : states) {
      std::vector<State> some{now};
      bool over = true;
      for (int s = 0; s < of.stages; ++s) {
        const auto at = static_cast<std::size_t>(s);
        const auto& [f0, f1, b0, b1, w, busy, doing] = now[at];
        over = over && w == of.chunks() * of.micro_batches && busy == 0;
        if (busy > 0) continue;
        for (int what = 0; what < 5; ++what) {
          const int part = what % 2 == 0 ? s : last - s;
          if (what < 4 && (now[at][static_cast<std::size_t>(what)] == of.micro_batches ||
                           what % 2 >= of.chunks()))
            continue;
          const int count = now[at][static_cast<std::size_t>(what)];
          const bool can =
              what == 4  ? w < b0 + b1
              : what < 2 ? f0 + f1 - w < of.memory && (part == 0 || done(now, 0, part - 1) > count)
              : part < last ? done(now, 2, part + 1) > count
                            : done(now, 0, part) > count;
          if (!can) continue;
          for (auto more = some.size(); more-- > 0;) {
            if (some[more][at][5] > 0) continue;
            auto begun = some[more];
            ++begun[at][static_cast<std::size_t>(what)];
            begun[at][5] = costs[what];
            begun[at][6] = what;
            some.push_back(std::move(begun));
          }
        }
      }
      if (over) return slots;
      for (auto& state : some) {
        for (auto& stage : state) stage[5] = std::max(0, stage[5] - 1);
        next.insert(std::move(state));
      }
    }
    states = std::move(next);
  }
}

TEST_CASE("shortest schedule: an exhaustive search finds none shorter") {
  for (const bool v : {false, true})
    for (const int memory : {1, 2, 3})
      for (const auto& [f, b, w] : {std::tuple{1, 1, 1}, {1, 2, 1}, {2, 1, 1}}) {
        const int m = v || f + b > 2 ? 2 : 3;
        const ScheduleProblem of{.stages = 2,
                                 .micro_batches = m,
                                 .memory = v ? memory + 1 : memory,
                                 .v_shaped = v,
                                 .forward = f,
                                 .backward_input = b,
                                 .backward_weight = w};
        is_proven(by_trying_all(of), of);
      }
}

TEST_CASE("shortest schedule: some lengths are known without a search") {
  // One stage or one micro-batch leaves no choice.
  is_proven(3 * 5, {.stages = 1, .micro_batches = 5});
  is_proven(2 * 3 + 1, {.stages = 3, .micro_batches = 1});
  is_proven(1 * 2 + 3 * 2 + 2,
            {.stages = 2, .memory = 2, .forward = 1, .backward_input = 3, .backward_weight = 2});
  // With 1F1B's memory no schedule is shorter than zero-bubble or, in a V, than zero-bubble-v.
  for (const auto& [stages, m] : {std::pair{2, 4}, {3, 6}, {4, 4}})
    is_proven(3 * m + stages - 1, {.stages = stages, .micro_batches = m, .memory = stages});
  is_proven(6 * 4 + 1, {.stages = 2, .micro_batches = 4, .memory = 4, .v_shaped = true});
  // Stage 7's first backward ends after 24 slots, in which it can do 12 forwards and this backward.
  CHECK(examples::schedule_bound({.stages = 8, .micro_batches = 16, .memory = 12, .v_shaped = true})
            .first == 24 - 13 + 6 * 16);
}

TEST_CASE("shortest schedule: if none is shorter than a known one, that one is proven") {
  // With memory for one micro-batch, the next one begins only after the weight gradient of the one before it.
  const auto found = found_for({.stages = 2, .micro_batches = 3, .memory = 1}, 3 * (2 * 2 + 1));
  CHECK(!found.length);
  CHECK(found.at_least == 15);
}

TEST_CASE("shortest schedule: problems outside the search are refused") {
  CHECK_THROWS_AS(ScheduleSearch({.stages = 2, .memory = 1, .v_shaped = true}, 1), dhp::Error);
}

}  // namespace
