// Moves over the data axis as actions of a stage's list: unshard and reshard of weights (ZeRO 3), reduce of gradients.
// with_moves() inserts them into any schedule's list, and schedule_check.hpp proves the result. The moves and their
// order depend only on the stage and the number of micro-batches, so replicas with the same number make the same moves.
#pragma once

#include <dhp/parallel/action.hpp>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace dhp::detail {

enum class Pass { training, evaluation };

/// A unit of moves: a bucket of ZeRO or a single parameter.
struct MovedUnit {
  /// When gradients are reduced. last: after the last micro-batch. each: after each micro-batch. end: after the last
  /// pass of the stage, because other stages add to them too.
  enum class Reduced { last, each, end };
  std::vector<int> chunks{};  ///< chunks that use the unit's weights and add to its gradients
  Reduced reduced = Reduced::last;
  bool sharded = false;  ///< weights are gathered before their use and freed after it
};

/// The units of a stage: which of them a pass needs, and the order of their reductions.
class MovePlan {
 public:
  struct Reduction {
    int unit;
    int micro_batches;  ///< number of micro-batches that must have added to the gradients
  };

  MovePlan() = default;
  /// units: first the units of Reduced::end, then the others in the order of their layers. Reductions run in reverse
  /// order. first_trained: the first chunk whose backward passes compute something.
  explicit MovePlan(int chunks, std::vector<MovedUnit> units, int first_trained = 0)
      : units_(std::move(units)), needs_(as_size(chunks)), first_trained_(first_trained) {
    for (std::size_t unit = 0; unit < units_.size(); ++unit)
      for (const int chunk : units_[unit].chunks)
        if (units_[unit].sharded) needs_[as_size(chunk)].push_back(static_cast<int>(unit));
  }

  [[nodiscard]] int chunks() const { return static_cast<int>(needs_.size()); }
  [[nodiscard]] const std::vector<MovedUnit>& units() const { return units_; }
  /// The units whose weights a pass needs.
  [[nodiscard]] std::span<const int> needs(const Action& action) const {
    const bool backward = action.kind != Action::Kind::forward;
    if (is_move(action) || action.kind == Action::Kind::backward_weight ||
        (backward && action.chunk < first_trained_))
      return {};
    return needs_[as_size(action.chunk)];
  }
  /// Returns all reductions of a step, in order.
  [[nodiscard]] std::vector<Reduction> reductions(int micro_batches) const {
    using enum MovedUnit::Reduced;
    const bool any_each = std::any_of(units_.begin(), units_.end(),
                                      [](const auto& unit) { return unit.reduced == each; });
    const int rounds = any_each ? std::max(micro_batches, 1) : 1;
    std::vector<Reduction> all;
    for (int round = 1; round <= rounds; ++round)
      for (std::size_t unit = units_.size(); unit-- > 0;)
        if (round == rounds || units_[unit].reduced == each)
          all.push_back({static_cast<int>(unit), round == rounds ? micro_batches : round});
    return all;
  }

 private:
  std::vector<MovedUnit> units_;
  std::vector<std::vector<int>> needs_;  // by chunk
  int first_trained_ = 0;
};

/// Replaces each pass by one pass per layer of its chunk. `chunk` then is the layer's index in the stage. first: the
/// index of each chunk's first layer, and the end.
[[nodiscard]] inline std::vector<Action> by_layers(const std::vector<Action>& list,
                                                   const std::vector<int>& first) {
  std::vector<Action> layers;
  for (const auto& action : list) {
    const int begin = first[as_size(action.chunk)], end = first[as_size(action.chunk) + 1];
    for (int at = begin; at < end; ++at)
      layers.push_back({action.kind,
                        action.kind == Action::Kind::forward ? at : begin + end - 1 - at,
                        action.micro_batch});
  }
  return layers;
}

/// Inserts unshard and reshard: each pass has its weights, and one unit for a later pass is prefetched.
[[nodiscard]] inline std::vector<Action> with_weights(const std::vector<Action>& passes,
                                                      const MovePlan& plan) {
  using Kind = Action::Kind;
  constexpr int none = -1;
  std::vector<Action> list;
  std::vector<int> here;
  int ahead = none;  // the prefetched unit, until a pass needs it
  const auto has = [](const auto& units, int unit) {
    return std::find(units.begin(), units.end(), unit) != units.end();
  };
  const auto unshard = [&](int unit) {
    if (unit == none || has(here, unit)) return;
    here.push_back(unit);
    list.push_back({Kind::unshard, unit});
  };
  const auto reshard_others = [&](std::span<const int> needed) {
    std::erase_if(here, [&](int unit) {
      const bool goes = unit != ahead && !has(needed, unit);
      if (goes) list.push_back({Kind::reshard, unit});
      return goes;
    });
  };
  const auto next_after = [&](std::size_t at, std::span<const int> needed) {
    const auto end = std::min(passes.size(), at + 1 + 2 * as_size(plan.chunks()));
    while (++at < end)
      for (const int unit : plan.needs(passes[at]))
        if (!has(needed, unit)) return unit;
    return none;
  };
  for (std::size_t at = 0; at < passes.size(); ++at) {
    const auto needed = plan.needs(passes[at]);
    if (!needed.empty()) {
      if (ahead == none || has(needed, ahead)) ahead = next_after(at, needed);
      reshard_others(needed);  // before unsharding, to reuse their memory
      for (const int unit : needed) unshard(unit);
      unshard(ahead);
    }
    list.push_back(passes[at]);
  }
  reshard_others({});
  return list;
}

/// Inserts each reduce as soon as its gradients are complete and all earlier reductions are in the list.
[[nodiscard]] inline std::vector<Action> with_reductions(const std::vector<Action>& passes,
                                                         const MovePlan& plan, int micro_batches) {
  std::vector<Action> list;
  std::vector<int> complete(as_size(plan.chunks()), 0);  // finished micro-batches, by chunk
  const auto reductions = plan.reductions(micro_batches);
  auto next = reductions.begin();
  const auto reduce = [&](bool at_end) {
    for (; next != reductions.end(); ++next) {
      const auto& unit = plan.units()[as_size(next->unit)];
      for (const int chunk : unit.chunks)
        if (complete[as_size(chunk)] < next->micro_batches) return;
      if (unit.reduced == MovedUnit::Reduced::end && !at_end) return;
      list.push_back({Action::Kind::reduce, next->unit});
    }
  };
  reduce(false);
  for (const auto& action : passes) {
    list.push_back(action);
    if (!ends_backward(action)) continue;
    ++complete[as_size(action.chunk)];
    reduce(false);
  }
  reduce(true);
  return list;
}

/// Inserts the plan's moves; reductions only in training.
[[nodiscard]] inline std::vector<Action> with_moves(const std::vector<Action>& passes,
                                                    const MovePlan& plan, int micro_batches,
                                                    Pass pass) {
  auto list = with_weights(passes, plan);
  return pass == Pass::training ? with_reductions(list, plan, micro_batches) : list;
}

}  // namespace dhp::detail
