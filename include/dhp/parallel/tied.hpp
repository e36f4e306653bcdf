// Tied weights: several pipeline stages use the same weight, such as BERT's embedding and decoder. Each of these stages
// holds a copy. The copies stay equal, because gradients are summed over these stages, then over replicas. The first
// stage owns the weight, so norms and checkpoints count it once. sum_shares() sums over tensor ranks instead.
#pragma once

#include <dhp/nn/replicas.hpp>

#include <map>
#include <set>
#include <utility>
#include <vector>

namespace dhp::detail {
/// Sums the gradient of a parameter over ranks that have a summand each.
template <class Dev>
void sum_gradient(Dev& dev, ParameterStore<Dev>& store, const ParameterState<Dev>& parameter,
                  Comm<Dev>& ranks) {
  store.prepare_gradients(dev, parameter.range);
  for (auto summand : store.summands(parameter.range)) ranks.all_reduce(dev, summand).wait();
  all_reduce_overflow(dev, store, ranks);
}
/// Sums a parameter's gradient over the tensor group if each rank uses it for its own rows only (Placement::shares).
template <class Dev>
void sum_shares(Dev& dev, ParameterStore<Dev>& store, const ParameterState<Dev>& parameter,
                Comm<Dev>& tensor) {
  if (parameter.spec.placement == Placement::shares && tensor.size() > 1)
    sum_gradient(dev, store, parameter, tensor);
}

template <class Dev>
class TiedParameters {
 public:
  TiedParameters() = default;

  /// by_stage: the parameters that each pipeline stage uses; the same list on every rank.
  TiedParameters(Comm<Dev>& pipeline, const std::vector<ParameterList<Dev>>& by_stage) {
    struct User {
      Parameter<Dev> parameter;
      std::set<int> stages;
    };
    // Sorted by index and tensor group: the same order on every rank.
    std::map<std::pair<int, int>, User> users;
    for (std::size_t stage = 0; stage < by_stage.size(); ++stage)
      for (const auto& parameter : by_stage[stage]) {
        auto& user = users[{parameter->index, parameter->spec.group}];
        user.parameter = parameter;
        user.stages.insert(static_cast<int>(stage));
      }
    const int stage = pipeline.rank();
    for (const auto& [key, user] : users) {
      if (user.stages.size() < 2) continue;
      const bool member = user.stages.contains(stage);
      if (user.parameter->spec.frozen) {  // there are no gradients to sum
        if (member) user.parameter->owned = stage == *user.stages.begin();
        continue;
      }
      auto comm = pipeline.split(member ? 0 : -1, stage);  // collective over all pipeline stages
      if (!member) continue;
      user.parameter->owned = stage == *user.stages.begin();
      user.parameter->tied = true;
      groups_.push_back({user.parameter, std::move(comm)});
    }
  }

  /// Sums the gradients of all tied parameters over the stages that use them.
  void sum(Dev& dev, ParameterStore<Dev>& store) {
    for (auto& group : groups_) sum_gradient(dev, store, *group.parameter, group.comm);
  }

 private:
  struct Group {
    Parameter<Dev> parameter;
    Comm<Dev> comm;
  };

  std::vector<Group> groups_;
};
}  // namespace dhp::detail
