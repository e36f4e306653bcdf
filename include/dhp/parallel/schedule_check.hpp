// The proof that a schedule is right, before it runs. Three laws, each checked by itself:
//   order     every stage does each (chunk, micro-batch) exactly once: forward before backward before weight
//   meeting   what a stage sends to another is what that one receives, in the same order
//   progress  no stage waits for ever when a send waits while its edge holds `capacity` messages
// Where a law is broken, an Error names the stage, the position in its list and the action.
#pragma once

#include <dhp/parallel/schedule.hpp>

#include <cstddef>
#include <utility>

namespace dhp {

/// training: forwards and backwards. evaluation: forwards alone.
enum class Pass { training, evaluation };

/// Bounds that hold whatever the speeds of the stages.
struct ScheduleReport {
  int most_messages = 0;  ///< sent and not yet received on one edge at a time
  /// By stage, the most (chunk, micro-batch) pairs in flight: from their forward to the end of ...
  std::vector<int> most_until_input_gradient;
  /// ... which differs in a schedule that puts weight gradients off, and tells the memory for activations.
  std::vector<int> most_until_weight_gradient;
};

namespace parallel {

class ScheduleChecker {
 public:
  ScheduleChecker(const StageLists& lists, int chunks, int micro_batches, int capacity, Pass pass)
      : lists_(lists),
        wiring_{static_cast<int>(lists.size()), chunks},
        micro_batches_(micro_batches),
        capacity_(capacity),
        pass_(pass) {}

  ScheduleReport run() {
    for (int stage = 0; stage < wiring_.stages; ++stage) check_order(stage);
    if (wiring_.stages == 1) return report_;  // talks to nobody
    for (int stage = 0; stage < wiring_.stages; ++stage) {
      check_meeting(stage, (stage + 1) % wiring_.stages, true);
      check_meeting(stage, (stage + wiring_.stages - 1) % wiring_.stages, false);
    }
    for (int slowest = 0; slowest < wiring_.stages; ++slowest) check_progress(slowest);
    return report_;
  }

 private:
  using Position = std::size_t;
  enum class State : char { waiting, forwarded, input_done, done };

  [[nodiscard]] const std::vector<Action>& list(int stage) const {
    return lists_[static_cast<std::size_t>(stage)];
  }
  [[nodiscard]] std::string name(int stage, Position at) const {
    return concat("stage ", stage, ", position ", at, " (", list(stage)[at], ")");
  }
  template <class... Parts>
  [[noreturn]] void broken(int stage, Position at, const Parts&... what) const {
    fail("schedule: ", name(stage, at), " ", concat(what...));
  }
  static bool is_forward(const Action& action) { return action.kind == Action::Kind::forward; }
  static bool is_weight(const Action& action) {
    return action.kind == Action::Kind::backward_weight;
  }

  // --- order ---
  void check_order(int stage) {
    const auto pairs =
        static_cast<std::size_t>(wiring_.chunks) * static_cast<std::size_t>(micro_batches_);
    check(list(stage).size() >= pairs / 2, "schedule: stage ", stage, " has only ",
          list(stage).size(), " actions for ", micro_batches_, " micro-batches in ", wiring_.chunks,
          " chunks");
    std::vector<State> states(pairs, State::waiting);
    const auto state_of = [&](int chunk, int micro_batch) -> State& {
      return states[static_cast<std::size_t>(chunk) * static_cast<std::size_t>(micro_batches_) +
                    static_cast<std::size_t>(micro_batch)];
    };
    int until_input = 0;
    int until_weight = 0;
    int most_until_input = 0;
    int most_until_weight = 0;
    for (Position at = 0; at < list(stage).size(); ++at) {
      const auto& action = list(stage)[at];
      if (action.chunk < 0 || action.chunk >= wiring_.chunks || action.micro_batch < 0 ||
          action.micro_batch >= micro_batches_)
        broken(stage, at, "does not exist: there are ", micro_batches_, " micro-batches and ",
               wiring_.chunks, " chunks");
      if (wiring_.stages == 1) check_neighbour(at, state_of);
      auto& state = state_of(action.chunk, action.micro_batch);
      advance(stage, at, state);
      if (pass_ == Pass::evaluation) continue;
      until_input += is_forward(action) ? 1 : is_weight(action) ? 0 : -1;
      until_weight += is_forward(action) ? 1 : state == State::done ? -1 : 0;
      most_until_input = std::max(most_until_input, until_input);
      most_until_weight = std::max(most_until_weight, until_weight);
    }
    for (int chunk = 0; chunk < wiring_.chunks; ++chunk)
      for (int m = 0; m < micro_batches_; ++m) check_complete(stage, chunk, m, state_of(chunk, m));
    report_.most_until_input_gradient.push_back(most_until_input);
    report_.most_until_weight_gradient.push_back(most_until_weight);
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

  /// With one stage the neighbouring chunk is in the same list, and has to come first.
  template <class StateOf>
  void check_neighbour(Position at, StateOf& state_of) const {
    const auto& action = list(0)[at];
    const auto source = wiring_.source(0, action);
    if (source < 0) return;
    const auto reached = state_of(static_cast<int>(source), action.micro_batch);
    if (reached < (is_forward(action) ? State::forwarded : State::input_done))
      broken(0, at, "comes before that of chunk ", source);
  }

  // --- meeting ---
  void check_meeting(int from, int to, bool forward) const {
    const auto next = [&](int stage, Position& at, auto part) {
      while (at < list(stage).size() && (is_forward(list(stage)[at]) != forward ||
                                         (wiring_.*part)(stage, list(stage)[at]) < 0))
        ++at;
      return at < list(stage).size();
    };
    Position sent = 0;
    Position received = 0;
    // The law of order holds already: both have the same number of messages.
    for (; next(from, sent, &Wiring::target) && next(to, received, &Wiring::source);
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
  // A stage neither looks whether a message has come nor chooses by it. So how far all of them get does not
  // depend on their speeds, and neither does the most that gathers before a stage that is slowest
  // at each of its moves: trying each stage as the slowest finds the most that any run can gather.
  struct Runner {
    Position next = 0;
    bool sending = false;  ///< the message of the action before `next` finds its edge full
    int messages[2] = {};  ///< on the edges into this stage: of backwards, of forwards
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
      const auto& runner = runners[static_cast<std::size_t>(stage)];
      if (!runner.sending && runner.next == list(stage).size()) continue;
      const auto at = runner.sending ? runner.next - 1 : runner.next;
      const auto& action = list(stage)[at];
      const auto part =
          runner.sending ? wiring_.target(stage, action) : wiring_.source(stage, action);
      stuck += concat(stuck.empty() ? "" : "; ", name(stage, at),
                      runner.sending ? " for a full edge to stage " : " for a message of stage ",
                      wiring_.stage_of(part));
    }
    check(stuck.empty(), "schedule: with ", capacity_,
          " messages per edge these wait for ever: ", stuck);
  }

  /// One move of one stage: an action, or a send that had to wait. False: it can do nothing now.
  bool move(std::vector<Runner>& runners, int stage) {
    auto& runner = runners[static_cast<std::size_t>(stage)];
    if (!runner.sending) {
      if (runner.next == list(stage).size()) return false;
      const auto& action = list(stage)[runner.next];
      if (wiring_.source(stage, action) >= 0) {
        auto& messages = runner.messages[is_forward(action)];
        if (messages == 0) return false;
        --messages;
      }
      ++runner.next;
      runner.sending = wiring_.target(stage, action) >= 0;
      if (!runner.sending) return true;
      (void)deliver(runners, stage);
      return true;
    }
    return deliver(runners, stage);
  }
  bool deliver(std::vector<Runner>& runners, int stage) {
    auto& runner = runners[static_cast<std::size_t>(stage)];
    const auto& action = list(stage)[runner.next - 1];
    const auto to = wiring_.stage_of(wiring_.target(stage, action));
    auto& messages = runners[static_cast<std::size_t>(to)].messages[is_forward(action)];
    if (messages == capacity_) return false;
    report_.most_messages = std::max(report_.most_messages, ++messages);
    runner.sending = false;
    return true;
  }

  const StageLists& lists_;
  Wiring wiring_;
  int micro_batches_;
  int capacity_;
  Pass pass_;
  ScheduleReport report_;
};

}  // namespace parallel

/// Proves the lists of all stages: sends are asynchronous until an edge (from one stage to another, forwards
/// and backwards apart) holds `capacity` messages, then they wait; messages keep their order.
[[nodiscard]] inline ScheduleReport check_schedule(const StageLists& lists, int chunks,
                                                   int micro_batches, int capacity,
                                                   Pass pass = Pass::training) {
  check(!lists.empty(), "schedule: there are no stages");
  check(chunks >= 1 && micro_batches >= 0, "schedule: ", chunks, " chunks and ", micro_batches,
        " micro-batches; at least 1 and 0");
  check(capacity >= 1, "schedule: an edge holds at least 1 message, not ", capacity);
  return parallel::ScheduleChecker(lists, chunks, micro_batches, capacity, pass).run();
}

}  // namespace dhp
