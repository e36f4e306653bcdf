// The actions of pipeline stages, and the messages between the parts of the model. An action is a pass (forward or
// backward) or a move (unshard or reshard of weights, reduce of gradients).
#pragma once

#include <dhp/core/error.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace dhp {

struct Action {
  /// backward is backward_input and backward_weight in one. unshard gathers a unit's weights, reshard frees them, and
  /// reduce sums its gradients over the replicas (moves.hpp).
  enum class Kind { forward, backward, backward_input, backward_weight, unshard, reshard, reduce };
  Kind kind = Kind::forward;
  /// The chunk of a pass or, in a list by layers (moves.hpp), the index of a layer in the stage; see unit(), too.
  int chunk = 0;
  int micro_batch = 0;  ///< 0 in a move
  /// Returns the unit whose weights or gradients a move moves.
  [[nodiscard]] constexpr int unit() const { return chunk; }
  friend bool operator==(const Action&, const Action&) = default;
};

[[nodiscard]] constexpr const char* name_of(Action::Kind kind) {
  constexpr const char* names[] = {"forward", "backward", "backward_input", "backward_weight",
                                   "unshard", "reshard",  "reduce"};
  static_assert(std::size(names) == detail::as_size(Action::Kind::reduce) + 1);
  const auto at = detail::as_size(kind);
  return at < std::size(names) ? names[at] : "unknown action";
}
namespace detail {
[[nodiscard]] constexpr bool is_move(const Action& action) {
  return action.kind >= Action::Kind::unshard;
}
/// Whether the action completes a micro-batch's weight gradients in its chunk.
[[nodiscard]] constexpr bool ends_backward(const Action& action) {
  return action.kind == Action::Kind::backward || action.kind == Action::Kind::backward_weight;
}
/// The most (chunk, micro-batch) pairs that have run their forward but lack their weight gradients.
[[nodiscard]] inline int max_in_flight(const std::vector<Action>& list) {
  int held = 0, most = 0;
  for (const auto& action : list) {
    if (action.kind == Action::Kind::forward) most = std::max(most, ++held);
    if (ends_backward(action)) --held;
  }
  return most;
}

/// Maps parts of the model to stages, and actions to messages. A forward receives an activation from the part before
/// its own and sends one to the part after it. A backward or backward_input does the same with gradients in the
/// opposite direction. Parts of one stage exchange no message. Each direction has its own communicator, so neither
/// waits behind the other.
struct Wiring {
  int stages;
  int chunks;
  bool v_shaped = false;

  [[nodiscard]] std::int64_t parts() const { return std::int64_t{stages} * chunks; }
  [[nodiscard]] std::int64_t part(int stage, int chunk) const {
    return std::int64_t{chunk} * stages + (goes_back(chunk) ? stages - 1 - stage : stage);
  }
  [[nodiscard]] std::int64_t part(int stage, const Action& action) const {
    return part(stage, action.chunk);
  }
  /// The part that the action receives from; -1: none.
  [[nodiscard]] std::int64_t source(int stage, const Action& action) const {
    return neighbor(stage, action, -1);
  }
  /// The part that the action sends to; -1: none.
  [[nodiscard]] std::int64_t target(int stage, const Action& action) const {
    return neighbor(stage, action, +1);
  }
  [[nodiscard]] int stage_of(std::int64_t part) const {
    const auto at = static_cast<int>(part % stages);
    return goes_back(chunk_of(part)) ? stages - 1 - at : at;
  }
  [[nodiscard]] int chunk_of(std::int64_t part) const { return static_cast<int>(part / stages); }
  /// Whether activations of this chunk go from later stages to earlier ones.
  [[nodiscard]] bool goes_back(int chunk) const { return v_shaped && chunk % 2 != 0; }

 private:
  [[nodiscard]] std::int64_t neighbor(int stage, const Action& action, int downstream) const {
    if (action.kind >= Action::Kind::backward_weight) return -1;
    const bool forward = action.kind == Action::Kind::forward;
    const auto other = part(stage, action) + (forward ? downstream : -downstream);
    return other < parts() ? other : -1;
  }
};

}  // namespace detail

[[nodiscard]] inline std::string to_text(const Action& action) {
  if (detail::is_move(action)) return concat(name_of(action.kind), " of unit ", action.unit());
  return concat(name_of(action.kind), " of micro-batch ", action.micro_batch, " in chunk ",
                action.chunk);
}

/// The actions of each stage. Chunk c of stage s is part c * stages + s of the model. v_shaped reverses the stages in
/// odd chunks: with two chunks, the first and the last part lie on stage 0.
struct StageLists : std::vector<std::vector<Action>> {
  using vector::vector;
  bool v_shaped = false;

  [[nodiscard]] detail::Wiring wiring(int chunks) const {
    return {static_cast<int>(size()), chunks, v_shaped};
  }
  /// Returns a pass whose chunk and micro-batch are the numbers of chunks and of micro-batches in these lists.
  [[nodiscard]] Action end_of_passes() const {
    Action end;
    for (const auto& list : *this)
      for (const auto& action : list) {
        if (detail::is_move(action)) continue;
        end.chunk = std::max(end.chunk, action.chunk + 1);
        end.micro_batch = std::max(end.micro_batch, action.micro_batch + 1);
      }
    return end;
  }
  friend bool operator==(const StageLists&, const StageLists&) = default;
};

}  // namespace dhp
