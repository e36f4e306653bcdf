// Pipeline schedules as pure data: the ordered forwards and backwards of each stage. They are drawn, timed
// (schedule_time) and proved (schedule_check) before anything runs. A stage is a rank of the pipeline axis. It holds
// `chunks` parts of the model; where they lie is the schedule's choice (StageLists). All schedules here need room for
// only one message per edge, so they run on any communicator.
#pragma once

#include <dhp/parallel/action.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dhp {

/// A small type with a name and each stage's list. It may have a number of `chunks` that it needs, and be `v_shaped`
/// (StageLists).
template <class S>
concept Schedule = requires(const S& schedule, int number) {
  { schedule.actions(number, number, number, number) } -> std::same_as<std::vector<Action>>;
  { schedule.name } -> std::convertible_to<std::string_view>;
};

namespace detail {

inline void check_stage(const char* name, int stage, int stages, int micro_batches, int chunks,
                        int only = 0) {
  check(stages >= 1 && stage >= 0 && stage < stages, "schedule ", name, ": there is no stage ",
        stage, " of ", stages);
  check(micro_batches >= 0, "schedule ", name, ": ", micro_batches, " micro-batches; 0 or more");
  check(chunks >= 1, "schedule ", name, ": ", chunks, " chunks per stage; at least 1");
  check(only == 0 || chunks == only, "schedule ", name, " keeps ", only,
        only == 1 ? " chunk" : " chunks", " per stage, not ", chunks,
        "; any other number needs the schedule interleaved");
}

/// A stage's list as patterns that repeat. "F0" is the forward of the next micro-batch in chunk 0, "B0" its backward,
/// "I0" that of the input alone, and W the oldest weight gradient that is still due. Micro-batches from `micro_batches`
/// on are imaginary and left out: a valid schedule stays valid without them.
class PatternList {
 public:
  explicit PatternList(int micro_batches) : micro_batches_(micro_batches) {}

  void repeat(int times, std::string_view pattern) {
    for (; times > 0; --times)
      for (auto rest = pattern; !rest.empty();) {
        const auto letter = take(rest);
        if (letter == 'W') {
          add(due_[weights_++]);
          continue;
        }
        const int chunk = take(rest) - '0';
        const auto kind = letter == 'F'   ? Action::Kind::forward
                          : letter == 'B' ? Action::Kind::backward
                                          : Action::Kind::backward_input;
        add({kind, chunk, next_[letter == 'F'][chunk]++});
        if (letter == 'I')
          due_.push_back({Action::Kind::backward_weight, chunk, next_[false][chunk] - 1});
      }
  }
  [[nodiscard]] std::vector<Action> done() { return std::move(list_); }

 private:
  static char take(std::string_view& text) {
    const char first = text.front();
    text.remove_prefix(1);
    return first;
  }
  void add(const Action& action) {
    if (action.micro_batch < micro_batches_) list_.push_back(action);
  }

  int micro_batches_;
  int next_[2][2] = {};      // of backwards and forwards, by chunk
  std::vector<Action> due_;  // weight gradients
  std::size_t weights_ = 0;  // of these that are done
  std::vector<Action> list_;
};

}  // namespace detail

/// All forwards, then all backwards (Huang et al. 2019, GPipe). Holds all micro-batches at once.
struct GPipe {
  static constexpr const char* name = "gpipe";
  static constexpr int chunks = 1;

  [[nodiscard]] static std::vector<Action> actions(int stage, int stages, int micro_batches,
                                                   int parts = chunks) {
    detail::check_stage(name, stage, stages, micro_batches, parts, chunks);
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
  static constexpr int chunks = 1;

  [[nodiscard]] static std::vector<Action> actions(int stage, int stages, int micro_batches,
                                                   int parts = chunks) {
    detail::check_stage(name, stage, stages, micro_batches, parts, chunks);
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
  static constexpr int chunks = 1;

  [[nodiscard]] static std::vector<Action> actions(int stage, int stages, int micro_batches,
                                                   int parts = chunks) {
    detail::check_stage(name, stage, stages, micro_batches, parts, chunks);
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
    detail::check_stage(name, stage, stages, micro_batches, chunks);
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

/// ZB-V (Qi et al. 2023 and 2024): two chunks per stage in the shape of a V, so that the last stage goes on with a
/// micro-batch at once, and the first has its loss. Beside deferred weight gradients that leaves a stage idle for half
/// as long as ZB-H1, and every stage of p holds the same: at most 2 p chunks, as much as the first one of 1F1B.
struct ZeroBubbleV {
  static constexpr const char* name = "zero-bubble-v";
  static constexpr int chunks = 2;
  static constexpr bool v_shaped = true;

  [[nodiscard]] static std::vector<Action> actions(int stage, int stages, int micro_batches,
                                                   int parts = chunks) {
    detail::check_stage(name, stage, stages, micro_batches, parts, chunks);
    detail::PatternList list(micro_batches);
    const int turn = stages - stage;  // to the last stage and back it is 2 turn - 1 parts
    list.repeat(2 * turn - 1, "F0");
    list.repeat(stage, "F1F0");
    list.repeat(turn, "F1I1W");
    list.repeat(std::max(micro_batches, 2 * stages - 1) - stages, "F0I0WF1I1W");
    list.repeat(stage, "I0I1");
    list.repeat(turn, "I0W");
    list.repeat(2 * stage, "W");
    return list.done();
  }
};

/// DualPipeV, the half of DualPipe (DeepSeek-AI 2024, DeepSeek-V3) that needs no second copy of the weights: forwards
/// of one chunk alternate with backwards of the other, so that one's messages travel while the other computes. Weight
/// gradients are deferred only where stages fill and drain. At most 2 p + 1 chunks on each stage of p.
struct DualPipeV {
  static constexpr const char* name = "dual-pipe-v";
  static constexpr int chunks = 2;
  static constexpr bool v_shaped = true;

  [[nodiscard]] static std::vector<Action> actions(int stage, int stages, int micro_batches,
                                                   int parts = chunks) {
    detail::check_stage(name, stage, stages, micro_batches, parts, chunks);
    detail::PatternList list(micro_batches);
    const int behind = stages - stage - 1, reached = stage + 1;
    list.repeat(2 * behind, "F0");
    list.repeat(reached, "F0F1");
    list.repeat(behind, "I1WF1");
    list.repeat(std::max(micro_batches, 2 * stages) - 2 * stages + reached, "F0B1F1B0");
    list.repeat(behind, "B1F1B0");
    list.repeat(reached / 2, "B1B0");
    list.repeat(reached % 2, "B1I0");
    list.repeat(reached / 2, "I1I0");
    list.repeat(behind, "WI0");
    list.repeat(reached, "W");
    return list.done();
  }
};

namespace detail {

/// For evaluation.
struct ForwardOnly {
  static constexpr const char* name = "forward only";
  bool v_shaped = false;

  [[nodiscard]] std::vector<Action> actions(int stage, int stages, int micro_batches,
                                            int chunks = 1) const {
    check_stage(name, stage, stages, micro_batches, chunks);
    if (!v_shaped) return Interleaved::forwards(stages, micro_batches, chunks);
    PatternList list(micro_batches);
    if (chunks != 2) {  // one micro-batch after the other, which any placement allows
      std::vector<Action> one_by_one;
      for (int m = 0; m < micro_batches; ++m)
        for (int chunk = 0; chunk < chunks; ++chunk)
          one_by_one.push_back({Action::Kind::forward, chunk, m});
      return one_by_one;
    }
    list.repeat(stages - stage, "F0");
    list.repeat(micro_batches, "F1F0");
    return list.done();
  }
};

}  // namespace detail

static_assert(Schedule<GPipe> && Schedule<OneForwardOneBackward> && Schedule<ZeroBubble> &&
              Schedule<Interleaved> && Schedule<ZeroBubbleV> && Schedule<DualPipeV> &&
              Schedule<detail::ForwardOnly>);
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
                    })) {
    if constexpr (requires { schedule.chunks; }) chunks_ = schedule.chunks;
    if constexpr (requires { schedule.v_shaped; }) v_shaped_ = schedule.v_shaped;
  }
  AnySchedule(std::string name, Function function)
      : name_(std::move(name)), function_(std::move(function)) {}

  [[nodiscard]] const std::string& name() const { return name_; }
  /// The number of chunks per stage that it needs where `wanted` are wanted.
  [[nodiscard]] int chunks(int wanted) const { return chunks_ > 0 ? chunks_ : wanted; }
  [[nodiscard]] bool v_shaped() const { return v_shaped_; }
  [[nodiscard]] std::vector<Action> actions(int stage, int stages, int micro_batches,
                                            std::optional<int> chunks = {}) const {
    return function_(stage, stages, micro_batches, chunks.value_or(this->chunks(1)));
  }

 private:
  std::string name_;
  Function function_;
  int chunks_ = 0;  // 0: any number
  bool v_shaped_ = false;
};

[[nodiscard]] inline std::vector<AnySchedule> built_in_schedules() {
  return {GPipe{},      OneForwardOneBackward{}, Interleaved{},
          ZeroBubble{}, ZeroBubbleV{},           DualPipeV{}};
}

[[nodiscard]] inline AnySchedule parse_schedule(std::string_view name) {
  std::string choice;
  for (const auto& schedule : built_in_schedules()) {
    if (name == schedule.name()) return schedule;
    choice += concat(choice.empty() ? "" : ", ", schedule.name());
  }
  fail("there is no schedule \"", name, "\"; choose one of ", choice);
}

[[nodiscard]] inline StageLists all_stages(const AnySchedule& schedule, int stages,
                                           int micro_batches, std::optional<int> chunks = {}) {
  StageLists lists;
  lists.v_shaped = schedule.v_shaped();
  for (int stage = 0; stage < stages; ++stage)
    lists.push_back(schedule.actions(stage, stages, micro_batches, chunks));
  return lists;
}

}  // namespace dhp
