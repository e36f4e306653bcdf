// The proof that a schedule is right, before it runs: it plays the lists of all stages under exactly the
// communicator's promises (messages between two ranks in order, a send waits while an edge is full) and
// checks each law. Also the time that a schedule takes under given costs.
#pragma once

#include <dhp/parallel/schedule.hpp>

#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace dhp {

/// Per stage: the actions of that stage, in its order.
using StageLists = std::vector<std::vector<Action>>;

[[nodiscard]] inline StageLists all_stages(ScheduleKind kind, int stages, int micro_batches,
                                           int chunks = 1) {
  StageLists lists;
  for (int stage = 0; stage < stages; ++stage)
    lists.push_back(actions(kind, stage, stages, micro_batches, chunks));
  return lists;
}

struct ScheduleReport {
  int most_messages = 0;         ///< waiting on one edge at the same time
  std::vector<int> activations;  ///< by stage: most tapes held between a forward and its input gradient
  std::vector<int> held;         ///< the same, until the weight gradient is done too
};

class ScheduleChecker {
 public:
  ScheduleChecker(const StageLists& lists, int chunks, int micro_batches, int capacity)
      : lists_(lists),
        stages_(static_cast<int>(lists.size())),
        chunks_(chunks),
        micro_batches_(micro_batches),
        capacity_(capacity),
        next_(lists.size(), 0),
        sending_(lists.size()),
        state_(static_cast<std::size_t>(stages_ * chunks * micro_batches)) {
    report_.activations.assign(lists.size(), 0);
    report_.held.assign(lists.size(), 0);
  }

  /// Throws Error with the stage, the position and the action where a law is broken.
  ScheduleReport run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int stage = 0; stage < stages_; ++stage)
        while (advance(stage)) moved = true;
    }
    for (int stage = 0; stage < stages_; ++stage) {
      const auto at = next_[index(stage)];
      if (sending_[index(stage)])
        broken(stage, at - 1, "waits for ever to send: the edge of capacity ", capacity_,
               " is full");
      if (at < lists_[index(stage)].size()) broken(stage, at, "waits for ever to receive");
    }
    for (std::size_t place = 0; place < state_.size(); ++place)
      check(state_[place] == State::done, "schedule: micro-batch ",
            static_cast<int>(place) % micro_batches_, " is not finished in part ",
            static_cast<int>(place) / micro_batches_, " of the model");
    return report_;
  }

 private:
  enum class State { none, forwarded, input_done, done };
  struct Message {
    int part;
    int micro_batch;
    friend bool operator==(const Message&, const Message&) = default;
  };
  struct Edge {
    bool forward;
    int from;
    int to;
    friend auto operator<=>(const Edge&, const Edge&) = default;
  };

  [[nodiscard]] static std::size_t index(int stage) { return static_cast<std::size_t>(stage); }
  [[nodiscard]] State& state(int part, int micro_batch) {
    return state_[static_cast<std::size_t>(part * micro_batches_ + micro_batch)];
  }
  template <class... Parts>
  [[noreturn]] void broken(int stage, std::size_t at, const Parts&... what) const {
    fail("schedule: stage ", stage, ", action ", at, " (", lists_[index(stage)][at], ") ",
         concat(what...));
  }

  /// One move of one stage: finish a send that waited, or do the next action. False: it has to wait.
  bool advance(int stage) {
    auto& waiting = sending_[index(stage)];
    if (waiting) {
      if (!deliver(waiting->first, waiting->second)) return false;
      waiting.reset();
      return true;
    }
    auto& at = next_[index(stage)];
    const auto& list = lists_[index(stage)];
    if (at == list.size()) return false;
    const auto& action = list[at];
    check(action.chunk >= 0 && action.chunk < chunks_ && action.micro_batch >= 0 &&
              action.micro_batch < micro_batches_,
          "schedule: stage ", stage, " has an action that does not exist: ", action);
    const int part = action.chunk * stages_ + stage;
    if (!receive(stage, at, action, part)) return false;
    transition(stage, at, action, part);
    ++at;
    send(stage, action, part);
    return true;
  }

  [[nodiscard]] bool is_backward(const Action& action) const {
    return action.kind == Action::Kind::backward || action.kind == Action::Kind::backward_input;
  }

  bool receive(int stage, std::size_t at, const Action& action, int part) {
    const bool forward = action.kind == Action::Kind::forward;
    if (!forward && !is_backward(action)) return true;
    const int source = forward ? part - 1 : part + 1;
    if (source < 0 || source == stages_ * chunks_) return true;
    if (stages_ == 1) {  // no message: the other chunk is here
      const auto done = state(source, action.micro_batch);
      if (forward ? done == State::none : done < State::input_done)
        broken(stage, at, "comes before part ", source, " has what it needs");
      return true;
    }
    auto& edge = edges_[{forward, source % stages_, stage}];
    if (edge.empty()) return false;
    if (!(edge.front() == Message{source, action.micro_batch}))
      broken(stage, at, "expects micro-batch ", action.micro_batch, " of part ", source,
             ", but the next message is micro-batch ", edge.front().micro_batch, " of part ",
             edge.front().part);
    edge.pop_front();
    return true;
  }

  void transition(int stage, std::size_t at, const Action& action, int part) {
    auto& now = state(part, action.micro_batch);
    switch (action.kind) {
      case Action::Kind::forward:
        if (now != State::none) broken(stage, at, "is there twice");
        now = State::forwarded;
        break;
      case Action::Kind::backward:
        if (now != State::forwarded) broken(stage, at, "needs one forward before it, and once");
        now = State::done;
        break;
      case Action::Kind::backward_input:
        if (now != State::forwarded) broken(stage, at, "needs one forward before it, and once");
        now = State::input_done;
        break;
      case Action::Kind::backward_weight:
        if (now != State::input_done)
          broken(stage, at, "needs one backward-input before it, and once");
        now = State::done;
        break;
    }
    count_held(stage);
  }

  void count_held(int stage) {
    int activations = 0;
    int held = 0;
    for (int chunk = 0; chunk < chunks_; ++chunk)
      for (int m = 0; m < micro_batches_; ++m) {
        const auto now = state(chunk * stages_ + stage, m);
        activations += now == State::forwarded ? 1 : 0;
        held += now == State::forwarded || now == State::input_done ? 1 : 0;
      }
    report_.activations[index(stage)] = std::max(report_.activations[index(stage)], activations);
    report_.held[index(stage)] = std::max(report_.held[index(stage)], held);
  }

  void send(int stage, const Action& action, int part) {
    if (stages_ == 1) return;
    const bool forward = action.kind == Action::Kind::forward;
    if (!forward && !is_backward(action)) return;
    const int target = forward ? part + 1 : part - 1;
    if (target < 0 || target == stages_ * chunks_) return;
    const Edge edge{forward, stage, target % stages_};
    const Message message{part, action.micro_batch};
    if (!deliver(edge, message)) sending_[index(stage)] = {edge, message};
  }
  bool deliver(const Edge& edge, const Message& message) {
    auto& queue = edges_[edge];
    if (static_cast<int>(queue.size()) >= capacity_) return false;
    queue.push_back(message);
    report_.most_messages = std::max(report_.most_messages, static_cast<int>(queue.size()));
    return true;
  }

  const StageLists& lists_;
  int stages_;
  int chunks_;
  int micro_batches_;
  int capacity_;
  std::vector<std::size_t> next_;
  std::vector<std::optional<std::pair<Edge, Message>>> sending_;
  std::vector<State> state_;
  std::map<Edge, std::deque<Message>> edges_;
  ScheduleReport report_;
};

/// Proves the lists of all stages for sends that wait once `capacity` messages are on an edge.
inline ScheduleReport check_schedule(const StageLists& lists, int chunks, int micro_batches,
                                     int capacity) {
  check(capacity >= 1, "schedule: an edge holds at least 1 message, got ", capacity);
  return ScheduleChecker(lists, chunks, micro_batches, capacity).run();
}

/// Time of each kind of action in one chunk; a whole backward takes input and weight gradient.
struct ActionCosts {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  [[nodiscard]] double of(Action::Kind kind) const {
    switch (kind) {
      case Action::Kind::forward: return forward;
      case Action::Kind::backward: return backward_input + backward_weight;
      case Action::Kind::backward_input: return backward_input;
      case Action::Kind::backward_weight: return backward_weight;
    }
    return 0;
  }
};

struct ScheduleTimes {
  std::vector<std::vector<double>> start;  ///< by stage and position
  double total = 0;                        ///< from the first action to the last
  std::vector<double> idle_share;          ///< by stage: 1 - busy time / total
};

/// When each action starts if every stage does its list as early as it can and messages take no time.
[[nodiscard]] inline ScheduleTimes time_schedule(const StageLists& lists, int chunks,
                                                 const ActionCosts& costs) {
  const int stages = static_cast<int>(lists.size());
  const int parts = stages * chunks;
  std::map<std::pair<int, int>, double> forward_end;
  std::map<std::pair<int, int>, double> backward_end;
  std::vector<std::size_t> next(lists.size(), 0);
  std::vector<double> clock(lists.size(), 0);
  std::vector<double> busy(lists.size(), 0);
  ScheduleTimes times;
  times.start.resize(lists.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (int stage = 0; stage < stages; ++stage) {
      const auto s = static_cast<std::size_t>(stage);
      for (; next[s] < lists[s].size(); ++next[s], moved = true) {
        const auto& action = lists[s][next[s]];
        const int part = action.chunk * stages + stage;
        const bool forward = action.kind == Action::Kind::forward;
        auto& ends = forward ? forward_end : backward_end;
        double ready = 0;
        if (action.kind != Action::Kind::backward_weight &&
            (forward ? part > 0 : part < parts - 1)) {
          const auto found = ends.find({forward ? part - 1 : part + 1, action.micro_batch});
          if (found == ends.end()) break;
          ready = found->second;
        }
        const double begin = std::max(clock[s], ready);
        clock[s] = begin + costs.of(action.kind);
        busy[s] += costs.of(action.kind);
        times.start[s].push_back(begin);
        // The input gradient leaves as soon as it is there, before the weight gradient.
        if (action.kind != Action::Kind::backward_weight) ends[{part, action.micro_batch}] = clock[s];
        times.total = std::max(times.total, clock[s]);
      }
    }
  }
  for (std::size_t s = 0; s < lists.size(); ++s) {
    check(next[s] == lists[s].size(), "schedule: stage ", static_cast<int>(s), " waits for ever");
    times.idle_share.push_back(times.total > 0 ? 1 - busy[s] / times.total : 0);
  }
  return times;
}

}  // namespace dhp
