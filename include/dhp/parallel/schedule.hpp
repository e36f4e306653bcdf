// Pipeline schedules as pure data: which forwards and backwards a stage does, in which order. What has to be
// sent and received follows from the actions. No device, no communicator: they can be printed, drawn and
// proved (schedule_check.hpp) before anything runs.
//
// A stage holds `chunks` parts of the model; chunk c of stage s is part c * stages + s of all.
#pragma once

#include <dhp/core/error.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dhp {

struct Action {
  /// backward is backward_input and backward_weight in one.
  enum class Kind { forward, backward, backward_input, backward_weight };
  Kind kind = Kind::forward;
  int chunk = 0;
  int micro_batch = 0;
  friend bool operator==(const Action&, const Action&) = default;
};

[[nodiscard]] inline std::string to_text(const Action& action) {
  const char* names[] = {"forward", "backward", "backward-input", "backward-weight"};
  return concat(names[static_cast<int>(action.kind)], " of micro-batch ", action.micro_batch,
                " in chunk ", action.chunk);
}

template <class S>
concept Schedule = requires(const S& schedule, int number) {
  { schedule.actions(number, number, number, number) } -> std::same_as<std::vector<Action>>;
};

/// All forwards, then all backwards (Huang et al. 2019). Holds every micro-batch at once.
struct GPipe {
  [[nodiscard]] static std::vector<Action> actions(int, int, int micro_batches, int) {
    std::vector<Action> list;
    for (int m = 0; m < micro_batches; ++m) list.push_back({Action::Kind::forward, 0, m});
    for (int m = 0; m < micro_batches; ++m) list.push_back({Action::Kind::backward, 0, m});
    return list;
  }
};

/// One forward, one backward (Narayanan et al. 2019, PipeDream-Flush): stage s of p holds at most p - s
/// micro-batches.
struct OneForwardOneBackward {
  [[nodiscard]] static std::vector<Action> actions(int stage, int stages, int micro_batches, int) {
    std::vector<Action> list;
    const int warmup = std::min(micro_batches, stages - stage - 1);
    for (int m = 0; m < warmup; ++m) list.push_back({Action::Kind::forward, 0, m});
    for (int m = 0; m < micro_batches; ++m) {
      if (m + warmup < micro_batches) list.push_back({Action::Kind::forward, 0, m + warmup});
      list.push_back({Action::Kind::backward, 0, m});
    }
    return list;
  }
};

/// ZB-H1 (Qi et al. 2023, "Zero bubble pipeline parallelism", section 2.3): weight gradients fill the idle
/// time, with no more micro-batches in flight than 1F1B.
struct ZeroBubble {
  [[nodiscard]] static std::vector<Action> actions(int stage, int stages, int micro_batches, int) {
    std::vector<Action> list;
    int forwards = std::min(micro_batches, stages - stage);
    int weights = 0;
    for (int m = 0; m < forwards; ++m) list.push_back({Action::Kind::forward, 0, m});
    for (int m = 0; m < micro_batches; ++m) {
      list.push_back({Action::Kind::backward_input, 0, m});
      if (m + 1 - weights > stage)
        list.push_back({Action::Kind::backward_weight, 0, weights++});
      if (forwards < micro_batches) list.push_back({Action::Kind::forward, 0, forwards++});
    }
    while (weights < micro_batches) list.push_back({Action::Kind::backward_weight, 0, weights++});
    return list;
  }
};

/// Interleaved 1F1B (Narayanan et al. 2021, section 2.2): several chunks per stage shrink the idle time by
/// their number. Takes any number of micro-batches: groups of up to `stages` of them go through one chunk
/// after the other, and the last group may be smaller.
struct Interleaved {
  [[nodiscard]] static std::vector<Action> actions(int stage, int stages, int micro_batches,
                                                   int chunks) {
    // The paper's list stalls for some numbers of micro-batches that are not a multiple of the stages.
    return micro_batches % stages == 0 ? in_turn(stage, stages, micro_batches, chunks)
                                       : played(stage, stages, micro_batches, chunks);
  }
  /// The fixed order in which every stage does its forwards, or its backwards.
  [[nodiscard]] static std::vector<Action> order(Action::Kind kind, int stages, int micro_batches,
                                                 int chunks) {
    std::vector<Action> list;
    for (int first = 0; first < micro_batches; first += stages)
      for (int c = 0; c < chunks; ++c)
        for (int m = first; m < std::min(first + stages, micro_batches); ++m)
          list.push_back({kind, kind == Action::Kind::forward ? c : chunks - 1 - c, m});
    return list;
  }

 private:
  /// How many forwards a stage does before its first backward.
  [[nodiscard]] static std::size_t warmup(int stage, int stages, int chunks) {
    return static_cast<std::size_t>((stages - stage - 1) * 2 + (chunks - 1) * stages);
  }
  static std::vector<Action> in_turn(int stage, int stages, int micro_batches, int chunks);
  static std::vector<Action> played(int stage, int stages, int micro_batches, int chunks);
};

/// The paper's list: a warm-up, then forwards and backwards in turn.
inline std::vector<Action> Interleaved::in_turn(int stage, int stages, int micro_batches,
                                                int chunks) {
  const auto forward = order(Action::Kind::forward, stages, micro_batches, chunks);
  const auto backward = order(Action::Kind::backward, stages, micro_batches, chunks);
  std::vector<Action> list;
  std::size_t next = std::min(forward.size(), warmup(stage, stages, chunks));
  list.insert(list.end(), forward.begin(), forward.begin() + static_cast<std::ptrdiff_t>(next));
  for (const auto& action : backward) {
    if (next < forward.size()) list.push_back(forward[next++]);
    list.push_back(action);
  }
  return list;
}

// How a stage mixes its two fixed orders is found by playing all stages in time slots: a backward whenever
// one is ready, else a forward if not too many are in flight. What is played cannot deadlock.
inline std::vector<Action> Interleaved::played(int stage, int stages, int micro_batches,
                                               int chunks) {
  struct Player {
    std::size_t forwards = 0;
    std::size_t backwards = 0;
    std::vector<Action> list;
  };
  const auto forward = order(Action::Kind::forward, stages, micro_batches, chunks);
  const auto backward = order(Action::Kind::backward, stages, micro_batches, chunks);
  const int parts = stages * chunks;
  const auto place = [&](int part, int m) {
    return static_cast<std::size_t>(part * micro_batches + m);
  };
  std::vector<bool> forward_done(place(parts, 0), false);
  std::vector<bool> backward_done(place(parts, 0), false);
  std::vector<Player> players(static_cast<std::size_t>(stages));
  std::size_t done = 0;
  while (done < forward.size() * static_cast<std::size_t>(stages)) {
    // Choices are made on what was done before this slot; their effects are seen in the next one.
    std::vector<std::pair<std::size_t, bool>> finished;  // place, is it a forward
    for (int s = 0; s < stages; ++s) {
      auto& player = players[static_cast<std::size_t>(s)];
      const auto in_flight = player.forwards - player.backwards;
      const auto limit = warmup(s, stages, chunks) + 1;
      if (player.backwards < backward.size()) {
        const auto& next = backward[player.backwards];
        const int part = next.chunk * stages + s;
        const bool after = part == parts - 1 || backward_done[place(part + 1, next.micro_batch)];
        if (after && forward_done[place(part, next.micro_batch)]) {
          player.list.push_back(next);
          ++player.backwards;
          ++done;
          finished.emplace_back(place(part, next.micro_batch), false);
          continue;
        }
      }
      if (player.forwards < forward.size() && in_flight < limit) {
        const auto& next = forward[player.forwards];
        const int part = next.chunk * stages + s;
        if (part == 0 || forward_done[place(part - 1, next.micro_batch)]) {
          player.list.push_back(next);
          ++player.forwards;
          finished.emplace_back(place(part, next.micro_batch), true);
        }
      }
    }
    check(!finished.empty(), "interleaved schedule: no stage can go on");
    for (const auto& [at, is_forward] : finished)
      (is_forward ? forward_done : backward_done)[at] = true;
  }
  return players[static_cast<std::size_t>(stage)].list;
}

enum class ScheduleKind { gpipe, one_forward_one_backward, interleaved, zero_bubble };

[[nodiscard]] inline ScheduleKind parse_schedule(std::string_view name) {
  if (name == "gpipe") return ScheduleKind::gpipe;
  if (name == "1f1b") return ScheduleKind::one_forward_one_backward;
  if (name == "interleaved") return ScheduleKind::interleaved;
  if (name == "zero-bubble") return ScheduleKind::zero_bubble;
  fail("unknown schedule \"", name, "\"; choose gpipe, 1f1b, interleaved or zero-bubble");
}

[[nodiscard]] constexpr const char* name_of(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::gpipe: return "gpipe";
    case ScheduleKind::one_forward_one_backward: return "1f1b";
    case ScheduleKind::interleaved: return "interleaved";
    case ScheduleKind::zero_bubble: return "zero-bubble";
  }
  return "?";
}

/// The list of one stage. No micro-batches: an empty list.
[[nodiscard]] inline std::vector<Action> actions(ScheduleKind kind, int stage, int stages,
                                                 int micro_batches, int chunks) {
  check(stages >= 1 && stage >= 0 && stage < stages && micro_batches >= 0 && chunks >= 1,
        "schedule: no stage ", stage, " of ", stages, " with ", chunks, " chunks and ",
        micro_batches, " micro-batches");
  check(chunks == 1 || kind == ScheduleKind::interleaved, "the schedule ", name_of(kind),
        " keeps one chunk per stage, got ", chunks, "; several need the interleaved schedule");
  switch (kind) {
    case ScheduleKind::gpipe: return GPipe::actions(stage, stages, micro_batches, chunks);
    case ScheduleKind::one_forward_one_backward:
      return OneForwardOneBackward::actions(stage, stages, micro_batches, chunks);
    case ScheduleKind::interleaved:
      return Interleaved::actions(stage, stages, micro_batches, chunks);
    case ScheduleKind::zero_bubble:
      return ZeroBubble::actions(stage, stages, micro_batches, chunks);
  }
  return {};
}

/// Evaluation: forwards only, the same order on every stage.
[[nodiscard]] inline std::vector<Action> forward_only(int, int stages, int micro_batches,
                                                      int chunks) {
  return Interleaved::order(Action::Kind::forward, stages, micro_batches, chunks);
}

static_assert(Schedule<GPipe> && Schedule<OneForwardOneBackward> && Schedule<ZeroBubble> &&
              Schedule<Interleaved>);
static_assert(!Schedule<Action>);

}  // namespace dhp
