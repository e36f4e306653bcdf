// Proves a schedule before it runs. Four laws, each checked separately:
//   order     every stage runs each (chunk, micro-batch) exactly once: forward before backward before weight
//   meeting   a stage receives the messages of another in the order in which they are sent
//   progress  no stage waits forever, although a send blocks while its edge holds `capacity` messages
//   moves     a pass has its weights; each reduce comes once, with complete gradients, in one order on all replicas
// An Error names the action and its position in the list; for the first three laws, the stage too.
#pragma once

#include <dhp/parallel/moves.hpp>
#include <dhp/parallel/schedule.hpp>

#include <cstddef>

namespace dhp {

/// Bounds that hold at any speed of the stages.
struct ScheduleReport {
  int max_messages = 0;  ///< most messages sent but not yet received on one edge
  /// By stage: the most (chunk, micro-batch) pairs that have run their forward but lack their weight gradients. Their
  /// activations are held until then.
  std::vector<int> max_until_weight_gradient;
};

namespace detail {

// A template, like check_schedule(), so that only programs with a pipeline compile it.
template <class Lists>
class ScheduleChecker {
 public:
  ScheduleChecker(const Lists& lists, int chunks, int batches, int capacity, Pass pass)
      : lists_(lists),
        wiring_(lists.wiring(chunks)),
        micro_batches_(batches),
        capacity_(capacity),
        pass_(pass) {}

  ScheduleReport run() {
    for (int stage = 0; stage < wiring_.stages; ++stage) check_order(stage);
    if (wiring_.stages == 1) return report_;  // no messages
    for (int stage = 0; stage < wiring_.stages; ++stage)
      for (const bool forward : {true, false}) {
        const int next = (stage + 1) % wiring_.stages;
        check_meeting(stage, next, forward);
        if (wiring_.stages > 2) check_meeting(next, stage, forward);
      }
    for (int slowest = 0; slowest < wiring_.stages; ++slowest) check_progress(slowest);
    return report_;
  }

 private:
  using Position = std::size_t;
  enum class State : char { waiting, forwarded, input_done, done };

  [[nodiscard]] const std::vector<Action>& list(int stage) const { return lists_[as_size(stage)]; }
  [[nodiscard]] std::string name(int stage, Position at) const {
    return concat("stage ", stage, ", position ", at, " (", list(stage)[at], ")");
  }
  [[noreturn]] void broken(int stage, Position at, const auto&... what) const {
    fail("schedule: ", name(stage, at), " ", concat(what...));
  }
  static bool is_forward(const Action& action) { return action.kind == Action::Kind::forward; }

  // --- order ---
  void check_order(int stage) {
    const auto pairs = as_size(wiring_.chunks) * as_size(micro_batches_);
    check(list(stage).size() >= pairs / 2, "schedule: stage ", stage, " has only ",
          list(stage).size(), " actions for ", pluralize(micro_batches_, "micro-batch"), " in ",
          pluralize(wiring_.chunks, "chunk"));
    std::vector<State> states(pairs, State::waiting);
    const auto state_of = [&](int chunk, int micro_batch) -> State& {
      return states[as_size(chunk) * as_size(micro_batches_) + as_size(micro_batch)];
    };
    for (Position at = 0; at < list(stage).size(); ++at) {
      const auto& action = list(stage)[at];
      if (is_move(action)) continue;
      if (action.chunk < 0 || action.chunk >= wiring_.chunks || action.micro_batch < 0 ||
          action.micro_batch >= micro_batches_)
        broken(stage, at, "does not exist: a stage has ", pluralize(micro_batches_, "micro-batch"),
               " in ", pluralize(wiring_.chunks, "chunk"));
      check_neighbor(stage, at, state_of);
      advance(stage, at, state_of(action.chunk, action.micro_batch));
    }
    for (int chunk = 0; chunk < wiring_.chunks; ++chunk)
      for (int m = 0; m < micro_batches_; ++m) check_complete(stage, chunk, m, state_of(chunk, m));
    report_.max_until_weight_gradient.push_back(max_in_flight(list(stage)));
  }

  void advance(int stage, Position at, State& state) const {
    const auto from = [&](State needed, State next, const char* before) {
      if (state < needed) broken(stage, at, "comes before its ", before);
      if (state > needed) broken(stage, at, "does again what was done before");
      state = next;
    };
    const auto kind = list(stage)[at].kind;
    if (pass_ == Pass::evaluation && kind != Action::Kind::forward)
      broken(stage, at, "is no forward, but evaluation has no others");
    switch (kind) {
      case Action::Kind::forward: return from(State::waiting, State::forwarded, "");
      case Action::Kind::backward: return from(State::forwarded, State::done, "forward");
      case Action::Kind::backward_input:
        return from(State::forwarded, State::input_done, "forward");
      case Action::Kind::backward_weight:
        return from(State::input_done, State::done, "backward_input");
      default: break;
    }
    broken(stage, at, "is of no known kind");
  }

  void check_complete(int stage, int chunk, int micro_batch, State state) const {
    if (state == (pass_ == Pass::training ? State::done : State::forwarded)) return;
    fail("schedule: stage ", stage, " comes to the end of its list, position ", list(stage).size(),
         ", without the ",
         state == State::waiting     ? "forward"
         : state == State::forwarded ? "backward"
                                     : "backward_weight",
         " of micro-batch ", micro_batch, " in chunk ", chunk);
  }

  /// sender: the stage whose message an action receives; receiver: the stage that receives its message; -1: none.
  [[nodiscard]] int sender(int stage, const Action& action) const {
    return other_stage(stage, wiring_.source(stage, action));
  }
  [[nodiscard]] int receiver(int stage, const Action& action) const {
    return other_stage(stage, wiring_.target(stage, action));
  }
  [[nodiscard]] int other_stage(int stage, std::int64_t part) const {
    return part < 0 || wiring_.stage_of(part) == stage ? -1 : wiring_.stage_of(part);
  }
  /// Throws if the action depends on an adjacent part of the same stage that has not run yet.
  void check_neighbor(int stage, Position at, auto& state_of) const {
    const auto& action = list(stage)[at];
    const auto source = wiring_.source(stage, action);
    if (source < 0 || wiring_.stage_of(source) != stage) return;
    const int chunk = wiring_.chunk_of(source);
    if (state_of(chunk, action.micro_batch) <
        (is_forward(action) ? State::forwarded : State::input_done))
      broken(stage, at, "comes before that of chunk ", chunk);
  }

  // --- meeting ---
  void check_meeting(int from, int to, bool forward) const {
    const auto next = [&](int stage, Position& at, int other, auto stage_beside) {
      while (at < list(stage).size() && (is_forward(list(stage)[at]) != forward ||
                                         (this->*stage_beside)(stage, list(stage)[at]) != other))
        ++at;
      return at < list(stage).size();
    };
    Position sent = 0;
    Position received = 0;
    // The law of order ensures equal numbers of sends and receives.
    for (; next(from, sent, to, &ScheduleChecker::receiver) &&
           next(to, received, from, &ScheduleChecker::sender);
         ++sent, ++received) {
      const auto& action = list(from)[sent];
      const auto& meets = list(to)[received];
      if (wiring_.target(from, action) != wiring_.part(to, meets) ||
          action.micro_batch != meets.micro_batch)
        broken(to, received, "receives what ", name(from, sent), " sends for part ",
               wiring_.target(from, action));
    }
  }

  // --- progress ---
  // Stages run their lists in a fixed order, whichever messages arrive first, so speeds do not decide whether they
  // finish. An edge fills most when its receiver runs only while no other stage can: so each stage is tried as the
  // slowest.
  struct Runner {
    Position next = 0;
    bool sending = false;  ///< the message of the action before `next` waits for room on its edge
    /// Messages on the edges into this stage, as messages[of a forward][from a later stage].
    int messages[2][2] = {};
  };

  void check_progress(int slowest) {
    std::vector<Runner> runners(lists_.size());
    for (bool moved = true; moved; moved = move(runners, slowest)) {
      for (bool others = true; others;) {
        others = false;
        for (int stage = 0; stage < wiring_.stages; ++stage)
          while (stage != slowest && move(runners, stage)) others = true;
      }
    }
    std::string stuck;
    for (int stage = 0; stage < wiring_.stages; ++stage) {
      const auto& runner = runners[as_size(stage)];
      if (!runner.sending && runner.next == list(stage).size()) continue;
      const auto at = runner.sending ? runner.next - 1 : runner.next;
      const auto& action = list(stage)[at];
      stuck += concat(stuck.empty() ? "" : "; ", name(stage, at),
                      runner.sending ? " for a full edge to stage " : " for a message of stage ",
                      runner.sending ? receiver(stage, action) : sender(stage, action));
    }
    check(stuck.empty(), "schedule: with ", capacity_,
          " messages per edge these wait forever: ", stuck);
  }

  /// Runs a stage's next action, or retries its blocked send. Returns false if the stage is blocked or done.
  bool move(std::vector<Runner>& runners, int stage) {
    auto& runner = runners[as_size(stage)];
    if (!runner.sending) {
      if (runner.next == list(stage).size()) return false;
      const auto& action = list(stage)[runner.next];
      if (const int from = sender(stage, action); from >= 0) {
        auto& messages = runner.messages[is_forward(action)][from > stage];
        if (messages == 0) return false;
        --messages;
      }
      ++runner.next;
      runner.sending = receiver(stage, action) >= 0;
      if (runner.sending) (void)deliver(runners, stage);
      return true;
    }
    return deliver(runners, stage);
  }
  bool deliver(std::vector<Runner>& runners, int stage) {
    auto& runner = runners[as_size(stage)];
    const auto& action = list(stage)[runner.next - 1];
    const int to = receiver(stage, action);
    auto& messages = runners[as_size(to)].messages[is_forward(action)][stage > to];
    if (messages == capacity_) return false;
    report_.max_messages = std::max(report_.max_messages, ++messages);
    runner.sending = false;
    return true;
  }

  const Lists& lists_;
  Wiring wiring_;
  int micro_batches_;
  int capacity_;
  Pass pass_;
  ScheduleReport report_;
};

/// Checks the law of moves on one stage's list.
class MoveChecker {
 public:
  MoveChecker(const std::vector<Action>& list, const MovePlan& plan, int micro_batches, Pass pass)
      : list_(list),
        plan_(plan),
        weights_(plan.units().size(), Weights::away),
        complete_(as_size(plan.chunks()), 0) {
    if (pass == Pass::training) reductions_ = plan.reductions(micro_batches);
  }

  void run() {
    for (; at_ < list_.size(); ++at_) {
      const auto& action = list_[at_];
      if (!is_move(action)) {
        run_pass(action);
        continue;
      }
      if (action.unit() < 0 || action.unit() >= std::ssize(weights_))
        broken("does not exist: a stage has ", pluralize(weights_.size(), "unit"));
      if (action.kind == Action::Kind::reduce) reduce(action.unit());
      else move_weights(action);
    }
    for (std::size_t unit = 0; unit < weights_.size(); ++unit)
      check(weights_[unit] == Weights::away, "schedule: unit ", unit,
            " stays unsharded at the end of the list");
    check(reduced_ == reductions_.size(), "schedule: the list ends without the reduce of unit ",
          reduced_ < reductions_.size() ? reductions_[reduced_].unit : 0);
  }

 private:
  enum class Weights : char { away, unused, used };

  [[noreturn]] void broken(const auto&... what) const {
    fail("schedule: position ", at_, " (", list_[at_], ") ", concat(what...));
  }
  void run_pass(const Action& action) {
    for (const int unit : plan_.needs(action)) {
      if (weights_[as_size(unit)] == Weights::away)
        broken("runs without the weights of unit ", unit);
      weights_[as_size(unit)] = Weights::used;
    }
    if (no_more_passes_) broken("comes after the reduce of a unit that other stages add to");
    if (ends_backward(action)) ++complete_[as_size(action.chunk)];
  }
  void move_weights(const Action& action) {
    const bool gathers = action.kind == Action::Kind::unshard;
    auto& weights = weights_[as_size(action.unit())];
    if (!plan_.units()[as_size(action.unit())].sharded)
      broken("moves weights that are not sharded");
    if (gathers && weights != Weights::away) broken("gathers weights that are there");
    if (!gathers && weights == Weights::away) broken("frees weights that are not there");
    if (!gathers && weights == Weights::unused) broken("frees weights that wait for their use");
    weights = gathers ? Weights::unused : Weights::away;
  }
  void reduce(int unit) {
    if (reduced_ == reductions_.size()) broken("comes once too often");
    const auto& due = reductions_[reduced_++];
    if (due.unit != unit) broken("comes where all replicas reduce unit ", due.unit);
    const auto& of = plan_.units()[as_size(unit)];
    for (const int chunk : of.chunks)
      if (complete_[as_size(chunk)] < due.micro_batches)
        broken("comes before the weight gradients of chunk ", chunk, " are complete: it has ",
               complete_[as_size(chunk)], " of ", due.micro_batches, " micro-batches");
    no_more_passes_ = no_more_passes_ || of.reduced == MovedUnit::Reduced::end;
  }

  const std::vector<Action>& list_;
  const MovePlan& plan_;
  std::vector<Weights> weights_;  // by unit
  std::vector<int> complete_;     // micro-batches with complete gradients, by chunk
  std::vector<MovePlan::Reduction> reductions_;
  std::size_t at_ = 0, reduced_ = 0;
  bool no_more_passes_ = false;  // a unit of Reduced::end was reduced
};

/// Proves the list that a stage runs: order of passes and law of moves.
inline void check_moves(const std::vector<Action>& list, const MovePlan& plan, int micro_batches,
                        Pass pass) {
  (void)ScheduleChecker(StageLists{list}, plan.chunks(), micro_batches, 1, pass).run();
  MoveChecker(list, plan, micro_batches, pass).run();
}

}  // namespace detail

/// Proves order, meeting and progress. A send is asynchronous until its edge holds `capacity` messages, then it blocks;
/// messages keep their order. An edge leads from one stage to another, for forwards or for backwards.
template <std::same_as<StageLists> Lists>
[[nodiscard]] ScheduleReport check_schedule(const Lists& lists, int chunks, int micro_batches,
                                            int capacity) {
  check(!lists.empty(), "schedule: there are no stages");
  check(chunks >= 1 && micro_batches >= 0, "schedule: ", chunks, " chunks and ", micro_batches,
        " micro-batches; at least 1 and 0");
  check(capacity >= 1, "schedule: an edge holds at least 1 message, not ", capacity);
  return detail::ScheduleChecker(lists, chunks, micro_batches, capacity, detail::Pass::training)
      .run();
}

}  // namespace dhp
