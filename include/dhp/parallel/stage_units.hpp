// StageUnits: the units that a stage's replicas move (buckets of ZeRO, single parameters), and the plan of their moves.
#pragma once

#include <dhp/nn/parameter_store.hpp>
#include <dhp/parallel/moves.hpp>
#include <dhp/parallel/stage_layers.hpp>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace dhp::detail {
template <class Dev>
class StageUnits {
 public:
  struct Unit {
    Range range;
    ParameterList<Dev> parameters;
    ShardedBucket<Dev>* bucket = nullptr;  ///< null: all replicas hold the parameter
    [[nodiscard]] bool tied() const { return parameters.front()->tied; }
  };

  StageUnits() = default;
  /// Keeps pointers to the store's buckets.
  StageUnits(ParameterStore<Dev>& store, const StageLayers<Dev>& layers)
      : buckets_(layers.own().size()) {
    std::map<const ParameterState<Dev>*, std::int64_t> unit_of;
    for (auto& bucket : store.buckets()) {
      for (const auto& parameter : bucket->parameters()) unit_of[parameter.get()] = 0;
      units_.push_back({bucket->range(), bucket->parameters(), bucket.get()});
    }
    for (const auto& parameter : store.parameters())
      if (!parameter->spec.frozen && !unit_of.contains(parameter.get()))
        units_.push_back({parameter->range, {parameter}});
    std::sort(units_.begin(), units_.end(), [](const Unit& a, const Unit& b) {
      return std::pair(!a.tied(), a.range.first) < std::pair(!b.tied(), b.range.first);
    });
    std::vector<MovedUnit> moved;
    for (const auto& unit : units_) {
      using enum MovedUnit::Reduced;
      const auto stage = unit.bucket ? store.options().sharding.stage : ZeroStage::none;
      for (const auto& parameter : unit.parameters) unit_of[parameter.get()] = std::ssize(moved);
      moved.push_back({{},
                       unit.tied()                     ? end
                       : stage >= ZeroStage::gradients ? each
                                                       : last,
                       stage == ZeroStage::weights});
    }
    int first_trained = 0;
    for (int place = 0; place < std::ssize(layers.own()); ++place) {
      const int layer = layers.own()[as_size(place)];
      if (!layers.is_trained_from(layer)) first_trained = place + 1;
      for (const auto& parameter : layers.parameters_of(layer)) {
        const auto found = unit_of.find(parameter.get());
        if (found == unit_of.end()) continue;
        const auto unit = as_size(found->second);
        auto& chunks = moved[unit].chunks;
        if (!chunks.empty() && chunks.back() == place) continue;
        chunks.push_back(place);
        if (auto* bucket = units_[unit].bucket) buckets_[as_size(place)].push_back(bucket);
      }
    }
    plan_ = MovePlan(static_cast<int>(layers.own().size()), std::move(moved), first_trained);
  }

  [[nodiscard]] const MovePlan& plan() const { return plan_; }
  [[nodiscard]] const Unit& operator[](int unit) const { return units_[as_size(unit)]; }
  /// Waits until the weights of an action's layer are gathered.
  void finish_gathers(Dev& dev, const Action& action) const {
    for (auto* bucket : buckets_[as_size(action.chunk)]) bucket->finish_gather(dev);
  }

 private:
  std::vector<Unit> units_;
  std::vector<std::vector<ShardedBucket<Dev>*>> buckets_;  // by layer of the stage
  MovePlan plan_;
};
}  // namespace dhp::detail
