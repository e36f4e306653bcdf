// The shortest schedule of a pipeline whose stages have limited room for activations. A search over all actions of the
// stages, slot by slot, finds it, and proves a bound below which there is none.
// Micro-batches are alike, so each stage takes them in order, and a state is the number of forwards, backwards and
// weight gradients that each part has begun. A state that is nowhere behind another one can do all that the other can,
// so the other is dropped. (Forwards of two parts that share the room of a stage are not compared so: the wrong one may
// fill it.) A state that cannot end in time is dropped, too. If no state is left, this proves that no schedule is so
// short.
#pragma once

#include <dhp/parallel/schedule.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace examples {

struct ScheduleProblem {
  int stages = 1;
  int micro_batches = 1;
  int memory = 1;  ///< activations of parts that a stage holds, from forward to weight gradient
  bool v_shaped = false;  ///< two parts per stage in a V, instead of one
  /// Slots of a part's forward, input gradient and weight gradient.
  int forward = 1, backward_input = 1, backward_weight = 1;

  [[nodiscard]] int chunks() const { return v_shaped ? 2 : 1; }
  [[nodiscard]] int parts() const { return stages * chunks(); }
};

/// Bounds in slots. If they are equal, the schedule is proven shortest.
struct ShortestSchedule {
  int at_least = 0;
  std::string because{};  ///< why no schedule is shorter
  std::optional<int> length{};
  dhp::StageLists lists{};
};

/// Returns a bound that needs no search, and its reason.
[[nodiscard]] inline std::pair<int, std::string> schedule_bound(const ScheduleProblem& of) {
  const int per_part = of.forward + of.backward_input;
  std::pair<int, std::string> most{of.parts() * per_part + of.backward_weight,
                                   "one micro-batch there and back"};
  const auto at_least = [&](int slots, const std::string& why) {
    if (slots > most.first) most = {slots, why};
  };
  for (int s = 0; s < of.stages; ++s) {
    const int starts = s * of.forward;
    const int work = of.micro_batches * of.chunks() * (per_part + of.backward_weight);
    at_least(starts + work, dhp::concat("the start and the work of stage ", s));
    // Part v keeps an activation while its micro-batch passes all later parts twice.
    int kept = (of.parts() - s) * per_part + of.backward_weight;
    if (of.v_shaped) kept += (s + 1) * per_part + of.backward_weight;
    const int room = (of.micro_batches * kept + of.memory - 1) / of.memory;
    at_least(starts + room, dhp::concat("the start and the room of stage ", s));
  }
  return most;
}

class ScheduleSearch {
 public:
  ScheduleSearch(const ScheduleProblem& problem, double seconds)
      : of_(problem),
        end_(Clock::now() +
             std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {
    dhp::check(of_.memory >= of_.chunks(), "a stage needs room for its ", of_.chunks(), " parts");
  }

  /// known: the length of a known schedule, if any; only shorter ones are searched.
  [[nodiscard]] ShortestSchedule run(std::optional<int> known = {}) {
    ShortestSchedule found;
    std::tie(found.at_least, found.because) = schedule_bound(of_);
    int most = known.value_or(of_.micro_batches * of_.parts() *
                                  (of_.forward + of_.backward_input + of_.backward_weight) +
                              1);
    const auto finds = [&](int slots, std::size_t width) {
      const auto ended = search(slots, width);
      if (ended == End::found) {
        found.length = slots;
        found.lists = lists();
      }
      return ended;
    };
    // A narrow search finds some schedule soon, a wide search proves.
    for (int slots = found.at_least; slots < most; slots += 1 + (slots - found.at_least) / 4)
      if (finds(slots, 100) == End::found) most = slots;
    bool proves = true;
    for (int slots = found.at_least; slots < most && Clock::now() < end_; ++slots) {
      const auto ended = finds(slots, most_states);
      if (ended == End::found) break;
      proves = proves && ended == End::none;
      if (proves) {
        found.at_least = slots + 1;
        found.because = dhp::concat("all ", states_, " states of ", slots, " slots");
      }
    }
    return found;
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Count = std::uint8_t;
  enum class End { found, none, unknown };
  static constexpr int most_stages = 8;
  static constexpr std::size_t most_states = 20000;

  struct Stage {
    Count forwards[2] = {}, backwards[2] = {}, weights = 0;
    Count busy = 0;   // remaining slots of the current action
    Count doing = 0;  // current action: 1 + kind * 2 + chunk
    friend bool operator==(const Stage&, const Stage&) = default;
  };
  struct State {
    std::array<Stage, most_stages> stages{};
    std::uint32_t from = 0;  // index of the state before, one slot earlier
    friend bool operator==(const State& a, const State& b) { return a.stages == b.stages; }
  };
  static_assert(sizeof(Stage) == 7);
  struct Hash {
    std::size_t operator()(const State& state) const {
      return std::hash<std::string_view>()(
          {reinterpret_cast<const char*>(state.stages.data()), sizeof state.stages});
    }
  };
  enum Kind { forward, backward, weight };

  [[nodiscard]] int cost(int kind) const {
    return kind == forward    ? of_.forward
           : kind == backward ? of_.backward_input
                              : of_.backward_weight;
  }
  [[nodiscard]] static int doing(int kind, int chunk) { return 1 + kind * 2 + chunk; }
  /// Returns how many of the part's actions of this kind are finished.
  [[nodiscard]] int finished(const State& state, int kind, int part) const {
    const auto& stage = at(state, wiring_.stage_of(part));
    const int chunk = wiring_.chunk_of(part);
    const int begun = kind == forward ? stage.forwards[chunk] : stage.backwards[chunk];
    return begun - (stage.busy > 0 && stage.doing == doing(kind, chunk) ? 1 : 0);
  }
  [[nodiscard]] static const Stage& at(const State& state, int stage) {
    return state.stages[static_cast<std::size_t>(stage)];
  }
  [[nodiscard]] static int kept(const Stage& stage) {
    return stage.forwards[0] + stage.forwards[1] - stage.weights;
  }

  [[nodiscard]] bool can(const State& state, int s, int kind, int chunk) const {
    const auto& stage = at(state, s);
    if (kind == weight)
      return chunk == 0 && stage.weights < stage.backwards[0] + stage.backwards[1];
    const int part = static_cast<int>(wiring_.part(s, chunk));
    const int begun = kind == forward ? stage.forwards[chunk] : stage.backwards[chunk];
    if (begun == of_.micro_batches) return false;
    if (kind == forward)
      return kept(stage) < of_.memory && (part == 0 || finished(state, forward, part - 1) > begun);
    const bool last = part == of_.parts() - 1;
    return last ? finished(state, forward, part) > begun
                : finished(state, backward, part + 1) > begun;
  }
  static void begin(Stage& stage, int kind, int chunk, int cost) {
    auto& count = kind == forward    ? stage.forwards[chunk]
                  : kind == backward ? stage.backwards[chunk]
                                     : stage.weights;
    ++count;
    stage.busy = static_cast<Count>(cost);
    stage.doing = static_cast<Count>(doing(kind, chunk));
  }

  /// Returns whether the remaining work fits into the remaining slots.
  [[nodiscard]] bool in_time(const State& state, int left) const {
    for (int s = 0; s < of_.stages; ++s) {
      const auto& stage = at(state, s);
      int work = stage.busy + (of_.chunks() * of_.micro_batches - stage.weights) * cost(weight);
      for (int chunk = 0; chunk < of_.chunks(); ++chunk) {
        const int part = static_cast<int>(wiring_.part(s, chunk));
        const int forwards = (of_.micro_batches - stage.forwards[chunk]) * cost(forward);
        const int backwards = (of_.micro_batches - stage.backwards[chunk]) * cost(backward);
        work += forwards + backwards;
        // After the last forward a micro-batch passes to the end and back; after the last backward it passes to part 0.
        const int back = part * cost(backward) + cost(weight);
        if (forwards > 0 && stage.busy + forwards + (of_.parts() - 1 - part) * cost(forward) +
                                    (of_.parts() - part) * cost(backward) + back >
                                left)
          return false;
        if (backwards > 0 && stage.busy + backwards + back > left) return false;
      }
      if (work > left) return false;
    }
    return true;
  }
  /// Returns the progress of a state; actions late on a micro-batch's way count more.
  [[nodiscard]] static int sum(const State& state) {
    int all = 0;
    for (const auto& stage : state.stages)
      all += 2 * stage.forwards[0] + 4 * stage.forwards[1] + 6 * stage.backwards[1] +
             8 * stage.backwards[0] + 4 * stage.weights - stage.busy;
    return all;
  }
  /// Returns whether `a` can do all that `b` can, as early.
  [[nodiscard]] bool ahead(const State& a, const State& b) const {
    for (std::size_t s = 0; s < most_stages; ++s) {
      const auto &x = a.stages[s], &y = b.stages[s];
      if (x.busy > y.busy || x.weights < y.weights) return false;
      for (const int chunk : {0, 1})
        if (x.forwards[chunk] < y.forwards[chunk] || x.backwards[chunk] < y.backwards[chunk] ||
            (parts_share_room() && x.forwards[chunk] != y.forwards[chunk]))
          return false;
      // `a` has not finished the action under way in `b`: a busy stage must do the same, or be in the same state.
      if (x.busy > 0 && x != y && x.doing != y.doing) return false;
    }
    return true;
  }

  [[nodiscard]] bool parts_share_room() const {
    return of_.v_shaped && of_.memory < 2 * of_.micro_batches;
  }

  /// Adds all states that may follow one slot later, until there are too many.
  void follow(const State& state, std::uint32_t number, int left, std::size_t room,
              auto& into) const {
    const bool may_wait = std::max({of_.forward, of_.backward_input, of_.backward_weight}) > 1;
    State next = state;
    next.from = number;
    const auto choose = [&](auto& self, int s) -> void {
      if (into.size() > room) return;
      if (s == of_.stages) {
        auto later = next;
        for (auto& stage : later.stages) {
          if (stage.busy > 0) --stage.busy;
          if (stage.busy == 0) stage.doing = 0;
        }
        if (in_time(later, left - 1)) into.insert(later);
        return;
      }
      auto& stage = next.stages[static_cast<std::size_t>(s)];
      const auto before = stage;
      bool any = false;
      for (const int kind : {backward, forward, weight})
        for (int chunk = of_.chunks(); chunk-- > 0;)
          if (before.busy == 0 && can(state, s, kind, chunk)) {
            any = any || kind != forward || !parts_share_room();
            begin(stage, kind, chunk, cost(kind));
            self(self, s + 1);
            stage = before;
          }
      // If actions take one slot, doing an action that takes no room from others is never worse than waiting.
      if (!any || may_wait) self(self, s + 1);
    };
    choose(choose, 0);
  }

  [[nodiscard]] End search(int slots, std::size_t width) {
    layers_.assign(1, {State{}});
    states_ = 1;
    if (!in_time(State{}, slots)) return End::none;
    bool all = true;
    for (int slot = 0; slot < slots; ++slot) {
      std::unordered_set<State, Hash> next;
      for (std::size_t number = 0; number < layers_.back().size(); ++number) {
        follow(layers_.back()[number], static_cast<std::uint32_t>(number), slots - slot, 8 * width,
               next);
        if (next.size() > 8 * width) {
          all = false;
          break;
        }
        if (number % 64 == 0 && Clock::now() > end_) return End::unknown;
      }
      std::vector<State> layer(next.begin(), next.end());
      std::sort(layer.begin(), layer.end(), [](const State& a, const State& b) {
        return std::pair{-sum(a), a.from} < std::pair{-sum(b), b.from};
      });
      drop_those_behind(layer);
      if (layer.size() > width) {
        all = false;
        layer.resize(width);
      }
      if (layer.empty()) return all ? End::none : End::unknown;
      states_ += static_cast<std::int64_t>(layer.size());
      layers_.push_back(std::move(layer));
    }
    return End::found;  // any state left at the end has done everything
  }
  void drop_those_behind(std::vector<State>& layer) const {
    constexpr std::size_t looked_at = 400;
    std::vector<State> front;
    for (const auto& state : layer) {
      const auto first = std::min(front.size(), looked_at);
      if (std::none_of(front.begin(), front.begin() + static_cast<std::ptrdiff_t>(first),
                       [&](const State& other) { return ahead(other, state); }))
        front.push_back(state);
    }
    layer = std::move(front);
  }

  /// Lists the actions that each stage began, slot by slot.
  [[nodiscard]] dhp::StageLists lists() const {
    std::vector<State> path;
    std::size_t number = 0;
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
      path.push_back((*layer)[number]);
      number = path.back().from;
    }
    dhp::StageLists made(static_cast<std::size_t>(of_.stages));
    made.v_shaped = of_.v_shaped;
    for (int s = 0; s < of_.stages; ++s) {
      auto& list = made[static_cast<std::size_t>(s)];
      std::vector<dhp::Action> due;
      for (std::size_t slot = path.size() - 1; slot-- > 0;) {
        const auto &before = at(path[slot + 1], s), &after = at(path[slot], s);
        for (const int chunk : {0, 1}) {
          if (after.forwards[chunk] > before.forwards[chunk])
            list.push_back({dhp::Action::Kind::forward, chunk, before.forwards[chunk]});
          if (after.backwards[chunk] > before.backwards[chunk]) {
            list.push_back({dhp::Action::Kind::backward_input, chunk, before.backwards[chunk]});
            due.push_back({dhp::Action::Kind::backward_weight, chunk, before.backwards[chunk]});
          }
        }
        if (after.weights > before.weights) list.push_back(due[before.weights]);
      }
    }
    return made;
  }

  ScheduleProblem of_;
  dhp::detail::Wiring wiring_{of_.stages, of_.chunks(), of_.v_shaped};
  Clock::time_point end_;
  std::vector<std::vector<State>> layers_;  // states by slot
  std::int64_t states_ = 0;
};

}  // namespace examples
