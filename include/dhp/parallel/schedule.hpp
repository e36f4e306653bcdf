// Pipeline schedules as pure data: the ordered forwards and backwards of each stage. They are drawn, timed
// (schedule_time) and proved (schedule_check) before anything runs. A stage is a rank of the pipeline axis and holds
// `chunks` parts of the model; the schedule decides which (StageLists). The schedules here need room for only one
// message per edge, so they run on any communicator.
#pragma once

#include <dhp/core/names.hpp>
#include <dhp/parallel/action.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <queue>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dhp {

/// A small type with a name and each stage's list. Optional members: `needed_chunks`, and `v_shaped` (StageLists).
template <class S>
concept Schedule = requires(const S& schedule, int number) {
  { schedule.actions(number, number, number, number) } -> std::same_as<std::vector<Action>>;
  { schedule.name } -> std::convertible_to<std::string_view>;
};

namespace detail {

/// needed_chunks: 0 allows any number.
inline void check_stage(const char* name, int stage, int stages, int micro_batches, int chunks,
                        int needed_chunks = 0) {
  check(stages >= 1 && stage >= 0 && stage < stages, "schedule ", name, ": there is no stage ",
        stage, " of ", stages);
  check(micro_batches >= 0, "schedule ", name, ": ", micro_batches, " micro-batches; 0 or more");
  check(chunks >= 1, "schedule ", name, ": ", chunks, " chunks per stage; at least 1");
  check(needed_chunks == 0 || chunks == needed_chunks, "schedule ", name, " keeps ",
        detail::pluralize(needed_chunks, "chunk"), " per stage, not ", chunks,
        "; set chunks to that, or choose the schedule interleaved");
}

/// Writes a stage's list and numbers its micro-batches: a forward or backward takes its chunk's next one, a
/// backward_weight takes the oldest deferred one of any chunk. Actions past the last micro-batch are dropped, so a
/// schedule may write too many; a valid list stays valid without them.
class ListWriter {
 public:
  ListWriter(int chunks, int micro_batches)
      : micro_batches_(micro_batches), forwards_(as_size(chunks)), backwards_(as_size(chunks)) {}

  void repeat(std::int64_t times, std::initializer_list<Action> pattern) {
    for (; times > 0; --times)
      for (const auto& action : pattern) add(action.kind, action.chunk);
  }
  void add(Action::Kind kind, int chunk) {
    if (kind == Action::Kind::backward_weight) {
      append(due_.front());
      return due_.pop();
    }
    auto& next = kind == Action::Kind::forward ? forwards_ : backwards_;
    const int micro_batch = next[as_size(chunk)]++;
    append({kind, chunk, micro_batch});
    if (kind == Action::Kind::backward_input)
      due_.push({Action::Kind::backward_weight, chunk, micro_batch});
  }
  [[nodiscard]] std::vector<Action> done() { return std::move(list_); }

 private:
  void append(const Action& action) {
    if (action.micro_batch < micro_batches_) list_.push_back(action);
  }

  int micro_batches_;
  std::vector<int> forwards_, backwards_;  // the next micro-batch of each chunk
  std::queue<Action> due_;                 // deferred weight gradients
  std::vector<Action> list_;
};

/// The lists of a schedule S with a fixed number of chunks, which S::write(list, stage, stages, micro_batches) writes.
template <class S>
struct Written {
  [[nodiscard]] static std::vector<Action> actions(int stage, int stages, int micro_batches,
                                                   int chunks = S::needed_chunks) {
    check_stage(S::name, stage, stages, micro_batches, chunks, S::needed_chunks);
    ListWriter list(chunks, micro_batches);
    S::write(list, stage, stages, micro_batches);
    return list.done();
  }
};

}  // namespace detail

/// All forwards, then all backwards (Huang et al. 2019, GPipe). Holds all micro-batches at the same time.
struct GPipe : detail::Written<GPipe> {
  static constexpr const char* name = "gpipe";
  static constexpr int needed_chunks = 1;

  static void write(detail::ListWriter& list, int, int, int micro_batches) {
    using enum Action::Kind;
    list.repeat(micro_batches, {{forward}});
    list.repeat(micro_batches, {{backward}});
  }
};

/// One forward, one backward (Narayanan et al. 2019, PipeDream; with a flush at the end of the step): as fast as
/// GPipe, but stage s of p holds at most p - s micro-batches.
struct OneForwardOneBackward : detail::Written<OneForwardOneBackward> {
  static constexpr const char* name = "1f1b";
  static constexpr int needed_chunks = 1;

  static void write(detail::ListWriter& list, int stage, int stages, int micro_batches) {
    using enum Action::Kind;
    list.repeat(stages - stage - 1, {{forward}});
    list.repeat(micro_batches, {{forward}, {backward}});
  }
};

/// ZB-H1 (Qi et al. 2023, Zero bubble pipeline parallelism): other stages wait only for the input gradient, so weight
/// gradients can fill idle slots. Later stages defer more of them; no stage of p holds more than p micro-batches.
struct ZeroBubble : detail::Written<ZeroBubble> {
  static constexpr const char* name = "zero-bubble";
  static constexpr int needed_chunks = 1;

  static void write(detail::ListWriter& list, int stage, int stages, int micro_batches) {
    using enum Action::Kind;
    list.repeat(stages - stage, {{forward}});
    list.repeat(stage, {{backward_input}, {forward}});
    // With the weight gradient before the forward, one micro-batch fewer is in flight.
    list.repeat(micro_batches - stage, {{backward_input}, {backward_weight}, {forward}});
    list.repeat(stage, {{backward_weight}});
  }
};

/// Interleaved 1F1B (Narayanan et al. 2021, Megatron-LM): v chunks per stage divide the idle time by v. The price is
/// more messages, and up to 2 (p - s) - 1 + (v - 1) p chunks in flight on stage s of p. Groups of p micro-batches pass
/// through one chunk after the other. With one chunk it is 1F1B.
struct Interleaved {
  static constexpr const char* name = "interleaved";

  [[nodiscard]] static std::vector<Action> actions(int stage, int stages, int micro_batches,
                                                   int chunks) {
    using enum Action::Kind;
    detail::check_stage(name, stage, stages, micro_batches, chunks);
    if (chunks == 1) return OneForwardOneBackward::actions(stage, stages, micro_batches);
    detail::ListWriter list(chunks, micro_batches);
    const auto all = forwards_of_stage(stages, micro_batches, chunks);
    const auto warmup =
        std::min<std::int64_t>(all, 2 * (stages - stage - 1) + std::int64_t{chunks - 1} * stages);
    for (auto at = -warmup; at < all; ++at) {
      if (at + warmup < all) list.add(forward, chunk_at(at + warmup, stages, chunks));
      if (at >= 0) list.add(backward, chunks - 1 - chunk_at(at, stages, chunks));
    }
    return list.done();
  }

  /// The list of an evaluation: only forward passes, in the same groups.
  [[nodiscard]] static std::vector<Action> forwards(int stages, int micro_batches, int chunks) {
    detail::ListWriter list(chunks, micro_batches);
    for (std::int64_t at = 0; at < forwards_of_stage(stages, micro_batches, chunks); ++at)
      list.add(Action::Kind::forward, chunk_at(at, stages, chunks));
    return list.done();
  }

 private:
  /// The number of a stage's forwards, including those that fill up the last group.
  static std::int64_t forwards_of_stage(std::int64_t stages, std::int64_t micro_batches,
                                        std::int64_t chunks) {
    return (micro_batches + stages - 1) / stages * stages * chunks;
  }
  /// The chunk of a stage's n-th forward; `forward` is n, from 0.
  static int chunk_at(std::int64_t forward, int stages, int chunks) {
    return static_cast<int>(forward / stages % chunks);
  }
};

/// ZB-V (Qi et al. 2023 and 2024): two chunks per stage in the shape of a V. The last stage continues with a
/// micro-batch immediately, and the first stage computes the loss. With deferred weight gradients a stage idles half as
/// long as in ZB-H1. Every stage of p holds at most 2 p chunks, as much memory as the first stage of 1F1B.
struct ZeroBubbleV : detail::Written<ZeroBubbleV> {
  static constexpr const char* name = "zero-bubble-v";
  static constexpr int needed_chunks = 2;
  static constexpr bool v_shaped = true;

  static void write(detail::ListWriter& list, int stage, int stages, int micro_batches) {
    using enum Action::Kind;
    const int turn = stages - stage;  // the way to the last stage and back takes 2 turn - 1 parts
    list.repeat(2 * turn - 1, {{forward, 0}});
    list.repeat(stage, {{forward, 1}, {forward, 0}});
    list.repeat(turn, {{forward, 1}, {backward_input, 1}, {backward_weight}});
    list.repeat(std::max(micro_batches, 2 * stages - 1) - stages, {{forward, 0},
                                                                   {backward_input, 0},
                                                                   {backward_weight},
                                                                   {forward, 1},
                                                                   {backward_input, 1},
                                                                   {backward_weight}});
    list.repeat(stage, {{backward_input, 0}, {backward_input, 1}});
    list.repeat(turn, {{backward_input, 0}, {backward_weight}});
    list.repeat(2 * stage, {{backward_weight}});
  }
};

/// DualPipeV, the half of DualPipe (DeepSeek-AI 2024, DeepSeek-V3) that needs no second copy of the weights. Forwards
/// of one chunk alternate with backwards of the other: the messages of one travel while the other computes. Weight
/// gradients are deferred only while stages fill and drain. Each stage of p holds at most 2 p + 1 chunks.
struct DualPipeV : detail::Written<DualPipeV> {
  static constexpr const char* name = "dual-pipe-v";
  static constexpr int needed_chunks = 2;
  static constexpr bool v_shaped = true;

  static void write(detail::ListWriter& list, int stage, int stages, int micro_batches) {
    using enum Action::Kind;
    const int behind = stages - stage - 1, reached = stage + 1;
    list.repeat(2 * behind, {{forward, 0}});
    list.repeat(reached, {{forward, 0}, {forward, 1}});
    list.repeat(behind, {{backward_input, 1}, {backward_weight}, {forward, 1}});
    list.repeat(std::max(micro_batches, 2 * stages) - 2 * stages + reached,
                {{forward, 0}, {backward, 1}, {forward, 1}, {backward, 0}});
    list.repeat(behind, {{backward, 1}, {forward, 1}, {backward, 0}});
    list.repeat(reached / 2, {{backward, 1}, {backward, 0}});
    list.repeat(reached % 2, {{backward, 1}, {backward_input, 0}});
    list.repeat(reached / 2, {{backward_input, 1}, {backward_input, 0}});
    list.repeat(behind, {{backward_weight}, {backward_input, 0}});
    list.repeat(reached, {{backward_weight}});
  }
};

namespace detail {

/// The schedule of an evaluation.
struct ForwardOnly {
  static constexpr const char* name = "forward only";
  bool v_shaped = false;

  [[nodiscard]] std::vector<Action> actions(int stage, int stages, int micro_batches,
                                            int chunks = 1) const {
    check_stage(name, stage, stages, micro_batches, chunks);
    if (!v_shaped) return Interleaved::forwards(stages, micro_batches, chunks);
    ListWriter list(chunks, micro_batches);
    const auto forward = Action::Kind::forward;
    if (chunks == 2) {
      list.repeat(stages - stage, {{forward, 0}});
      list.repeat(micro_batches, {{forward, 1}, {forward, 0}});
    } else {  // one micro-batch after the other, which is valid for any placement of chunks
      for (int m = 0; m < micro_batches; ++m)
        for (int chunk = 0; chunk < chunks; ++chunk) list.add(forward, chunk);
    }
    return list.done();
  }
};

}  // namespace detail

/// Any Schedule, or your own function that returns a stage's list.
class AnySchedule {
 public:
  /// function(stage, stages, micro_batches, chunks)
  using Function = std::function<std::vector<Action>(int, int, int, int)>;

  template <Schedule S>
  AnySchedule(const S& schedule)
      : AnySchedule(schedule.name, Function([schedule](auto... numbers) {
                      return schedule.actions(numbers...);
                    })) {
    if constexpr (requires { schedule.needed_chunks; }) needed_chunks_ = schedule.needed_chunks;
    if constexpr (requires { schedule.v_shaped; }) v_shaped_ = schedule.v_shaped;
  }
  AnySchedule(std::string name, Function function)
      : name_(std::move(name)), function_(std::move(function)) {}

  [[nodiscard]] const std::string& name() const { return name_; }
  /// Chunks per stage; empty: any number is allowed.
  [[nodiscard]] std::optional<int> needed_chunks() const { return needed_chunks_; }
  [[nodiscard]] bool v_shaped() const { return v_shaped_; }
  [[nodiscard]] std::vector<Action> actions(int stage, int stages, int micro_batches,
                                            std::optional<int> chunks = {}) const {
    return function_(stage, stages, micro_batches, chunks.value_or(needed_chunks_.value_or(1)));
  }

 private:
  std::string name_;
  Function function_;
  std::optional<int> needed_chunks_;
  bool v_shaped_ = false;
};

[[nodiscard]] inline std::vector<AnySchedule> built_in_schedules() {
  return {GPipe{},      OneForwardOneBackward{}, Interleaved{},
          ZeroBubble{}, ZeroBubbleV{},           DualPipeV{}};
}

[[nodiscard]] inline AnySchedule parse_schedule(std::string_view name) {
  const auto schedules = built_in_schedules();
  for (const auto& schedule : schedules)
    if (name == schedule.name()) return schedule;
  fail("there is no schedule \"", name, "\"; choose one of ", detail::choice_of(schedules));
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
