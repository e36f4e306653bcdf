// Tied weights across pipeline stages (BERT's embedding and decoder): a handle that two stages use is a
// weight that both hold. Both start from the same initial values; their gradients are summed over the
// stages that use it, before replicas are reduced, and both take the same step. The first of them owns it:
// it alone counts in norms and in checkpoints.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/nn/parameter_store.hpp>

#include <algorithm>
#include <vector>

namespace dhp {

template <class Dev>
class TiedParameters {
 public:
  TiedParameters() = default;

  /// by_stage: the handles that each stage of the pipeline uses; the same list on every rank of it.
  TiedParameters(Comm<Dev>& pipeline, const std::vector<ParameterList<Dev>>& by_stage) {
    ParameterList<Dev> seen;
    for (const auto& list : by_stage)
      for (const auto& parameter : list) {
        if (std::find(seen.begin(), seen.end(), parameter) != seen.end()) continue;
        seen.push_back(parameter);
        add_if_tied(pipeline, by_stage, parameter);
      }
  }

  [[nodiscard]] bool contains(const ParameterState<Dev>& parameter) const {
    return std::any_of(groups_.begin(), groups_.end(),
                       [&](const Group& group) { return group.parameter.get() == &parameter; });
  }

  /// Sums the gradients of each tied parameter over the stages that use it, then reports it ready.
  template <class Ready>
  void reduce(Dev& dev, ParameterStore<Dev>& store, Ready& ready) {
    for (auto& group : groups_) {
      for (auto summand : store.summands(group.parameter->range))
        group.comm.all_reduce(dev, summand).wait();
      if (auto flag = store.overflow()) group.comm.all_reduce(dev, flag, Reduce::max).wait();
      ready(group.parameter->range);
    }
  }

 private:
  struct Group {
    Parameter<Dev> parameter;
    Comm<Dev> comm;
  };

  // Collective over the pipeline, also for the stages that do not use the parameter.
  void add_if_tied(Comm<Dev>& pipeline, const std::vector<ParameterList<Dev>>& by_stage,
                   const Parameter<Dev>& parameter) {
    std::vector<int> users;
    for (std::size_t stage = 0; stage < by_stage.size(); ++stage)
      if (std::find(by_stage[stage].begin(), by_stage[stage].end(), parameter) !=
          by_stage[stage].end())
        users.push_back(static_cast<int>(stage));
    if (users.size() < 2) return;
    const int stage = pipeline.rank();
    const bool member = std::find(users.begin(), users.end(), stage) != users.end();
    auto comm = pipeline.split(member ? 0 : -1, stage);
    if (!member) return;
    parameter->owned = stage == users.front();
    groups_.push_back({parameter, std::move(comm)});
  }

  std::vector<Group> groups_;
};

}  // namespace dhp
