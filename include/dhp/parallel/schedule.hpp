// Pipeline schedules as pure data: the ordered forwards and backwards of each stage. They are drawn, timed
// (schedule_time) and proved (schedule_check) before anything runs. A stage is a rank of the pipeline axis. It holds
// `chunks` parts of the model; chunk c of stage s is part c * stages + s. All schedules here need room for only one
// message per edge, so they run on any communicator.
#pragma once

#include <dhp/core/error.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
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

[[nodiscard]] constexpr const char* name_of(Action::Kind kind) {
  switch (kind) {
    case Action::Kind::forward: return "forward";
    case Action::Kind::backward: return "backward";
    case Action::Kind::backward_input: return "backward_input";
    case Action::Kind::backward_weight: return "backward_weight";
  }
  return "unknown action";
}
[[nodiscard]] inline std::string to_text(const Action& action) {
  return concat(name_of(action.kind), " of micro-batch ", action.micro_batch, " in chunk ",
                action.chunk);
}

/// The actions of each stage.
using StageLists = std::vector<std::vector<Action>>;

/// The messages of actions. A forward of part v receives an activation from part v - 1 and sends one to part v + 1. A
/// backward (whole, or of the input) receives a gradient from part v + 1 and sends one to part v - 1. Each direction
/// has its own communicator, so that neither waits behind the other.
struct Wiring {
  int stages;
  int chunks;

  [[nodiscard]] std::int64_t parts() const { return std::int64_t{stages} * chunks; }
  [[nodiscard]] std::int64_t part(int stage, const Action& action) const {
    return std::int64_t{action.chunk} * stages + stage;
  }
  /// The part that the action receives from, or -1.
  [[nodiscard]] std::int64_t source(int stage, const Action& action) const {
    return neighbour(stage, action, -1);
  }
  /// The part that the action sends to, or -1.
  [[nodiscard]] std::int64_t target(int stage, const Action& action) const {
    return neighbour(stage, action, +1);
  }
  [[nodiscard]] int stage_of(std::int64_t part) const { return static_cast<int>(part % stages); }

 private:
  [[nodiscard]] std::int64_t neighbour(int stage, const Action& action, int downstream) const {
    if (action.kind == Action::Kind::backward_weight) return -1;
    const bool forward = action.kind == Action::Kind::forward;
    const auto other = part(stage, action) + (forward ? downstream : -downstream);
    return other < parts() ? other : -1;
  }
};

/// A small type with a name and each stage's list.
template <class S>
concept Schedule = requires(const S& schedule, int number) {
  { schedule.actions(number, number, number, number) } -> std::same_as<std::vector<Action>>;
  { schedule.name } -> std::convertible_to<std::string_view>;
};

namespace detail {

inline void check_stage(const char* name, int stage, int stages, int micro_batches, int chunks,
                        bool only_one_chunk) {
  check(stages >= 1 && stage >= 0 && stage < stages, "schedule ", name, ": there is no stage ",
        stage, " of ", stages);
  check(micro_batches >= 0, "schedule ", name, ": ", micro_batches, " micro-batches; 0 or more");
  check(chunks >= 1, "schedule ", name, ": ", chunks, " chunks per stage; at least 1");
  check(chunks == 1 || !only_one_chunk, "schedule ", name, " keeps one chunk per stage, not ",
        chunks, "; several chunks need the schedule interleaved");
}

}  // namespace detail

/// All forwards, then all backwards (Huang et al. 2019, GPipe). Holds all micro-batches at once.
struct GPipe {
  static constexpr const char* name = "gpipe";

  [[nodiscard]] static std::vector<Action> actions(int stage, int stages, int micro_batches,
                                                   int chunks = 1) {
    detail::check_stage(name, stage, stages, micro_batches, chunks, true);
    std::vector<Action> list;
    for (int m = 0; m < micro_batches; ++m) list.push_back({Action::Kind::forward, 0, m});
    for (int m = 0; m < micro_batches; ++m) list.push_back({Action::Kind::backward, 0, m});
    return list;
  }
};

/// One forward, one backward (Narayanan et al. 2019, PipeDream; with a flush at the end of the step): as fast as
/// GPipe, but stage s of p holds at most p - s micro-batches.
struct OneForwardOneBackward {
  static constexpr const char* name = "1f1b";

  [[nodiscard]] static std::vector<Action> actions(int stage, int stages, int micro_batches,
                                                   int chunks = 1) {
    detail::check_stage(name, stage, stages, micro_batches, chunks, true);
    std::vector<Action> list;
    int forwards = 0;
    const auto forward = [&] {
      if (forwards < micro_batches) list.push_back({Action::Kind::forward, 0, forwards++});
    };
    while (forwards < std::min(micro_batches, stages - stage - 1)) forward();
    for (int m = 0; m < micro_batches; ++m) {
      forward();
      list.push_back({Action::Kind::backward, 0, m});
    }
    return list;
  }
};

/// ZB-H1 (Qi et al. 2023, Zero bubble pipeline parallelism): another stage waits for the input gradient only, so
/// weight gradients fill the slots in which a stage would idle. Later stages defer more of them; no stage of
/// p holds more than p micro-batches.
struct ZeroBubble {
  static constexpr const char* name = "zero-bubble";

  [[nodiscard]] static std::vector<Action> actions(int stage, int stages, int micro_batches,
                                                   int chunks = 1) {
    detail::check_stage(name, stage, stages, micro_batches, chunks, true);
    std::vector<Action> list;
    int forwards = 0;
    int weights = 0;
    const auto forward = [&] {
      if (forwards < micro_batches) list.push_back({Action::Kind::forward, 0, forwards++});
    };
    const auto weight = [&] { list.push_back({Action::Kind::backward_weight, 0, weights++}); };
    while (forwards < std::min(micro_batches, stages - stage)) forward();
    for (int m = 0; m < micro_batches; ++m) {
      list.push_back({Action::Kind::backward_input, 0, m});
      if (m + 1 - weights > stage) weight();  // before the forward: one less in flight
      forward();
    }
    while (weights < micro_batches) weight();
    return list;
  }
};

/// Interleaved 1F1B (Narayanan et al. 2021, Megatron-LM): v chunks per stage divide the idle time by v, for more
/// messages and up to 2 (p - s) - 1 + (v - 1) p chunks in flight on stage s of p. Groups of p micro-batches pass
/// through one chunk after the other. The last group is padded with imaginary micro-batches, which are left
/// out again: a valid schedule stays valid without them. With one chunk it is 1F1B.
struct Interleaved {
  static constexpr const char* name = "interleaved";

  [[nodiscard]] static std::vector<Action> actions(int stage, int stages, int micro_batches,
                                                   int chunks) {
    detail::check_stage(name, stage, stages, micro_batches, chunks, false);
    if (chunks == 1) return OneForwardOneBackward::actions(stage, stages, micro_batches);
    std::vector<Action> list;
    const auto all = turns(stages, micro_batches, chunks);
    const auto warmup =
        std::min<std::int64_t>(all, 2 * (stages - stage - 1) + std::int64_t{chunks - 1} * stages);
    for (auto turn = -warmup; turn < all; ++turn) {
      if (turn + warmup < all)
        append(list, Action::Kind::forward, turn + warmup, stages, micro_batches, chunks);
      if (turn >= 0) append(list, Action::Kind::backward, turn, stages, micro_batches, chunks);
    }
    return list;
  }

  /// Forward passes only, in the same groups.
  [[nodiscard]] static std::vector<Action> forwards(int stages, int micro_batches, int chunks) {
    std::vector<Action> list;
    for (std::int64_t turn = 0; turn < turns(stages, micro_batches, chunks); ++turn)
      append(list, Action::Kind::forward, turn, stages, micro_batches, chunks);
    return list;
  }

 private:
  /// Forwards of one stage, imaginary ones included.
  static std::int64_t turns(std::int64_t stages, std::int64_t micro_batches, std::int64_t chunks) {
    return (micro_batches + stages - 1) / stages * stages * chunks;
  }
  /// Appends the action number `turn` of its kind, unless its micro-batch is imaginary.
  static void append(std::vector<Action>& list, Action::Kind kind, std::int64_t turn,
                     std::int64_t stages, int micro_batches, int chunks) {
    const auto group = turn / (stages * chunks);
    const auto within = turn % (stages * chunks);
    const auto micro_batch = static_cast<int>(group * stages + within % stages);
    const auto chunk = static_cast<int>(within / stages);
    if (micro_batch < micro_batches)
      list.push_back(
          {kind, kind == Action::Kind::forward ? chunk : chunks - 1 - chunk, micro_batch});
  }
};

/// For evaluation.
struct ForwardOnly {
  static constexpr const char* name = "forward only";

  [[nodiscard]] static std::vector<Action> actions(int stage, int stages, int micro_batches,
                                                   int chunks = 1) {
    detail::check_stage(name, stage, stages, micro_batches, chunks, false);
    return Interleaved::forwards(stages, micro_batches, chunks);
  }
};

static_assert(Schedule<GPipe> && Schedule<OneForwardOneBackward> && Schedule<ZeroBubble> &&
              Schedule<Interleaved> && Schedule<ForwardOnly>);
static_assert(!Schedule<Action>);

/// One of these, or your own function that returns a stage's list.
class AnySchedule {
 public:
  /// function(stage, stages, micro_batches, chunks)
  using Function = std::function<std::vector<Action>(int, int, int, int)>;

  template <Schedule S>
  AnySchedule(const S& schedule)
      : AnySchedule(schedule.name, Function([schedule](auto... numbers) {
                      return schedule.actions(numbers...);
                    })) {}
  AnySchedule(std::string name, Function function)
      : name_(std::move(name)), function_(std::move(function)) {}

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::vector<Action> actions(int stage, int stages, int micro_batches,
                                            int chunks = 1) const {
    return function_(stage, stages, micro_batches, chunks);
  }

 private:
  std::string name_;
  Function function_;
};

[[nodiscard]] inline std::vector<AnySchedule> built_in_schedules() {
  return {GPipe{}, OneForwardOneBackward{}, Interleaved{}, ZeroBubble{}};
}

[[nodiscard]] inline AnySchedule parse_schedule(std::string_view name) {
  for (const auto& schedule : built_in_schedules())
    if (name == schedule.name()) return schedule;
  fail("there is no schedule \"", name, "\"; choose one of gpipe, 1f1b, interleaved, zero-bubble");
}

[[nodiscard]] inline StageLists all_stages(const AnySchedule& schedule, int stages,
                                           int micro_batches, int chunks = 1) {
  StageLists lists;
  for (int stage = 0; stage < stages; ++stage)
    lists.push_back(schedule.actions(stage, stages, micro_batches, chunks));
  return lists;
}

}  // namespace dhp
