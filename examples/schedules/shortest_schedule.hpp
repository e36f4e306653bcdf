// The shortest schedule of a pipeline whose stages have limited room for activations. A search over all actions of the
// stages, slot by slot, finds it, and proves a lower bound of its length.
// Micro-batches are alike, so each stage takes them in order. A state is the number of forwards, backwards and weight
// gradients that each part has begun. The search drops a state if another state is nowhere behind it. Two parts of one
// stage share its room, so such states must have equal forwards: more of one part may leave no room for the other. The
// search also drops a state that cannot end in time. If no state is left, no schedule is so short.
#pragma once

#include <dhp/parallel/schedule.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace examples {

using dhp::detail::as_size;

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

  [[nodiscard]] bool proven() const { return length && *length <= at_least; }
};

/// Returns a lower bound of the length that needs no search, and its reason.
[[nodiscard]] inline std::pair<int, std::string> schedule_bound(const ScheduleProblem& of) {
  const int per_part = of.forward + of.backward_input;
  std::pair<int, std::string> most{of.parts() * per_part + of.backward_weight,
                                   "one micro-batch there and back"};
  const auto at_least = [&](int slots, const std::string& why) {
    if (slots > most.first) most = {slots, why};
  };
  const int work = of.micro_batches * of.chunks() * (per_part + of.backward_weight);
  for (int s = 0; s < of.stages; ++s) {
    const int starts = s * of.forward;
    at_least(starts + work, dhp::concat("the start and the work of stage ", s));
    // A part keeps an activation while its micro-batch passes all later parts twice.
    int kept = (of.parts() - s) * per_part + of.backward_weight;
    if (of.v_shaped) kept += (s + 1) * per_part + of.backward_weight;
    const int room = (of.micro_batches * kept + of.memory - 1) / of.memory;
    at_least(starts + room, dhp::concat("the start and the room of stage ", s));
  }
  // No room becomes free before a stage's first backward pass has ended. Until then the stage does at most this pass
  // and as many forward passes as it has room for.
  for (int s = 0; s < of.stages; ++s) {
    const int backwards = of.v_shaped ? s + 1 : of.parts() - s;  // of a micro-batch, to that pass
    const int until = of.parts() * of.forward + backwards * of.backward_input;
    const int done = of.memory * of.forward + of.backward_input;
    at_least(until + work - done,
             dhp::concat("the room until the first backward, and the work, of stage ", s));
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
    int most = known.value_or(
        of_.micro_batches * of_.parts() * (cost(forwards) + cost(backwards) + cost(weights)) + 1);
    const auto finds = [&](int slots, std::size_t width) {
      const auto ended = search(slots, width);
      if (ended == End::found) found.length = slots, found.lists = lists();
      return ended;
    };
    // A narrow search finds some schedule soon, a wide search proves.
    for (const std::size_t width : {100, 4000})
      for (int slots = found.at_least; slots < most && !found.length;
           slots += 1 + (slots - found.at_least) / 4)
        if (finds(slots, width) == End::found) most = slots;
    bool proves = true;
    for (int slots = found.at_least; slots < most && Clock::now() < end_; ++slots) {
      const auto ended = finds(slots, max_states);
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
  static constexpr int max_stages = 8, max_micro_batches = 100;
  static constexpr std::size_t max_states = 600000;
  /// Places in Stage::begun: forwards and backwards have one for each of two chunks.
  static constexpr int forwards = 0, backwards = 2, weights = 4;

  struct Stage {
    Count begun[5] = {};
    Count busy = 0;   // remaining slots of the current action
    Count doing = 0;  // current action: its place in begun, counted from 1
    friend bool operator==(const Stage&, const Stage&) = default;
  };
  struct State {
    std::array<Stage, max_stages> stages{};
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

  [[nodiscard]] int cost(int what) const {
    return what < backwards ? of_.forward
           : what < weights ? of_.backward_input
                            : of_.backward_weight;
  }
  /// A micro-batch's way through the stages: a forward of each part, then a backward of each part.
  struct Pass {
    int stage;
    int what;       // its place in Stage::begun
    int after = 0;  // slots of a micro-batch's later passes, and of the last weight gradient
  };
  [[nodiscard]] std::vector<Pass> passes() const {
    std::vector<Pass> all;
    for (int part = 0; part < of_.parts(); ++part)
      all.push_back({wiring_.stage_of(part), forwards + wiring_.chunk_of(part)});
    for (int part = of_.parts() - 1; part >= 0; --part)
      all.push_back({wiring_.stage_of(part), backwards + wiring_.chunk_of(part)});
    int after = cost(weights);
    for (auto& pass : all | std::views::reverse)
      pass.after = std::exchange(after, after + cost(pass.what));
    return all;
  }
  /// Returns how many micro-batches have finished this pass.
  [[nodiscard]] static int finished(const State& state, const Pass& pass) {
    const auto& stage = state.stages[as_size(pass.stage)];
    return stage.begun[pass.what] - (stage.doing == 1 + pass.what ? 1 : 0);
  }
  [[nodiscard]] bool can(const State& state, int s, int what) const {
    const auto& n = state.stages[as_size(s)].begun;
    if (what == weights) return n[weights] < n[backwards] + n[backwards + 1];
    const int chunk = what % 2;
    if (chunk == of_.chunks() || n[what] == of_.micro_batches) return false;
    if (what < backwards && n[0] + n[1] - n[weights] >= of_.memory) return false;
    const auto part = as_size(wiring_.part(s, chunk));
    const auto pass = what < backwards ? part : passes_.size() - 1 - part;
    return pass == 0 || finished(state, passes_[pass - 1]) > n[what];
  }

  /// Returns whether each stage, as the only one with limited time, can do its remaining actions in the remaining
  /// slots. An action has an earliest start and slots that must follow it. If actions could be interrupted, it
  /// would be best to do always the one with the most slots after it (J. R. Jackson, 1955; J. Carlier, The one-machine
  /// sequencing problem, 1982).
  [[nodiscard]] bool in_time(const State& state, int left) {
    remaining_.clear();
    starting_.assign(as_size(of_.stages * left), -1);
    const auto add = [&](int stage, int start, int slots, int after) {
      int& newest = starting_[as_size(stage * left + start)];
      remaining_.push_back({slots, after, newest});
      newest = static_cast<int>(remaining_.size()) - 1;
    };
    std::array<int, max_micro_batches> ready{};  // when a micro-batch has done the pass before
    for (const auto& pass : passes_) {
      const auto& stage = state.stages[as_size(pass.stage)];
      const int done = finished(state, pass), begun = stage.begun[pass.what];
      std::fill_n(ready.begin(), done, 0);
      std::fill(ready.begin() + done, ready.begin() + begun, stage.busy);
      int free = stage.busy;
      for (int i = begun; i < of_.micro_batches; ++i) {
        const int start = std::max(free, ready[as_size(i)]);
        const int after = pass.after + (of_.micro_batches - 1 - i) * cost(backwards);
        ready[as_size(i)] = free = start + cost(pass.what);
        if (free + after > left) return false;
        add(pass.stage, start, cost(pass.what), after);
        if (pass.what >= backwards) add(pass.stage, free, cost(weights), 0);
      }
    }
    for (int s = 0; s < of_.stages; ++s)
      if (!stage_in_time(state, s, left)) return false;
    return true;
  }
  [[nodiscard]] bool stage_in_time(const State& state, int s, int left) {
    const auto& stage = state.stages[as_size(s)];
    const auto& n = stage.begun;
    int work = (n[backwards] + n[backwards + 1] - n[weights]) * cost(weights);
    waiting_.assign(as_size(left), 0);  // slots of work, by the slots after it
    waiting_[0] = work;
    int most = 0;  // nothing that waits has more slots after it
    for (int slot = 0; slot < left; ++slot) {
      for (int next = starting_[as_size(s * left + slot)]; next >= 0;) {
        const auto& action = remaining_[as_size(next)];
        waiting_[as_size(action.after)] += action.slots;
        work += action.slots;
        most = std::max(most, action.after);
        next = action.next;
      }
      while (most > 0 && waiting_[as_size(most)] == 0) --most;
      if (slot < stage.busy || waiting_[as_size(most)] == 0) continue;
      if (slot + 1 + most > left) return false;
      --waiting_[as_size(most)];
      --work;
    }
    return work == 0;
  }
  /// Returns the progress of a state; actions late on a micro-batch's way count more.
  [[nodiscard]] static int sum(const State& state) {
    constexpr int worth[] = {2, 4, 8, 6, 4};
    int all = 0;
    for (const auto& stage : state.stages)
      all += std::inner_product(worth, worth + 5, stage.begun, -int{stage.busy});
    return all;
  }
  /// Returns whether `a` can do all that `b` can, and no later.
  [[nodiscard]] bool ahead(const State& a, const State& b) const {
    for (std::size_t s = 0; s < max_stages; ++s) {
      const auto &x = a.stages[s], &y = b.stages[s];
      if (x.busy > y.busy) return false;
      for (int what = 0; what <= weights; ++what)
        if (x.begun[what] < y.begun[what] ||
            (x.begun[what] > y.begun[what] && what < backwards && parts_share_room()))
          return false;
      // A busy stage of `a` has not finished its action. It is ahead only if the stage does the same action in `b`.
      if (x.busy > 0 && x != y && x.doing != y.doing) return false;
    }
    return true;
  }
  [[nodiscard]] bool parts_share_room() const {
    return of_.v_shaped && of_.memory < 2 * of_.micro_batches;
  }

  /// Adds all states that may follow one slot later, until there are too many.
  void follow(const State& state, std::uint32_t number, std::size_t room, auto& into) const {
    const bool may_wait = std::max({cost(forwards), cost(backwards), cost(weights)}) > 1;
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
        into.insert(later);
        return;
      }
      auto& stage = next.stages[as_size(s)];
      const auto before = stage;
      bool any = false;
      // backwards first, beginning with the last chunk
      for (const int what : {backwards + 1, backwards, forwards + 1, forwards, weights})
        if (before.busy == 0 && can(state, s, what)) {
          any = any || what >= backwards || !parts_share_room();
          ++stage.begun[what];
          stage.busy = static_cast<Count>(cost(what));
          stage.doing = static_cast<Count>(1 + what);
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
      for (std::uint32_t number = 0; number < layers_.back().size() && next.size() <= 8 * width;
           ++number) {
        follow(layers_.back()[number], number, 8 * width, next);
        if (number % 64 == 0 && Clock::now() > end_) return End::unknown;
      }
      std::vector<State> layer;
      for (const auto& state : next)
        if (in_time(state, slots - slot - 1)) layer.push_back(state);
      std::ranges::sort(layer, {}, [](const State& of) { return std::pair{-sum(of), of.from}; });
      drop_those_behind(layer);
      all = all && next.size() <= 8 * width && layer.size() <= width;
      layer.resize(std::min(layer.size(), width));
      if (layer.empty()) return all ? End::none : End::unknown;
      states_ += static_cast<std::int64_t>(layer.size());
      layers_.push_back(std::move(layer));
    }
    return End::found;  // any state left at the end has done everything
  }
  void drop_those_behind(std::vector<State>& layer) const {
    constexpr std::size_t looked_at = 2000;
    std::unordered_map<State, std::vector<State>, Hash> fronts;  // by what must be equal
    std::erase_if(layer, [&](const State& state) {
      State equal;
      for (std::size_t s = 0; s < max_stages && parts_share_room(); ++s)
        std::copy_n(state.stages[s].begun, backwards, equal.stages[s].begun);
      auto& front = fronts[equal];
      const bool behind =
          std::ranges::any_of(front | std::views::take(looked_at),
                              [&](const State& other) { return ahead(other, state); });
      if (!behind) front.push_back(state);
      return behind;
    });
  }

  /// Lists the actions that each stage began, slot by slot.
  [[nodiscard]] dhp::StageLists lists() const {
    using enum dhp::Action::Kind;
    constexpr dhp::Action actions[] = {
        {forward, 0}, {forward, 1}, {backward_input, 0}, {backward_input, 1}, {backward_weight}};
    std::vector<State> path;  // the last state first
    std::size_t number = 0;
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
      path.push_back((*layer)[number]);
      number = path.back().from;
    }
    dhp::StageLists result;
    result.v_shaped = of_.v_shaped;
    for (int s = 0; s < of_.stages; ++s) {
      dhp::detail::ListWriter list(of_.chunks(), of_.micro_batches);
      for (std::size_t slot = path.size() - 1; slot-- > 0;)
        for (int what = 0; what <= weights; ++what)
          if (path[slot].stages[as_size(s)].begun[what] >
              path[slot + 1].stages[as_size(s)].begun[what])
            list.add(actions[what].kind, actions[what].chunk);
      result.push_back(list.done());
    }
    return result;
  }

  ScheduleProblem of_;
  dhp::detail::Wiring wiring_{of_.stages, of_.chunks(), of_.v_shaped};
  Clock::time_point end_;
  std::vector<Pass> passes_ = passes();
  // Memory of in_time().
  struct Remaining {
    int slots, after;
    int next;  // index of another action of the same stage with the same earliest start; -1: none
  };
  std::vector<Remaining> remaining_;
  std::vector<int> starting_, waiting_;
  std::vector<std::vector<State>> layers_;  // states by slot
  std::int64_t states_ = 0;
};

}  // namespace examples
