// Replicas: the communication between replicas beyond sums of gradients, for code that uses weights and gradients:
// stages, norms, trainers and checkpoints. Reducers that need it implement this class. DataParallel::replicas() returns
// it, or null if no such communication is needed.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/nn/parameter_store.hpp>

namespace dhp {

/// Base class of such reducers. All replicas make the same calls in the same order. By default most calls do nothing.
template <class Dev>
class Replicas : detail::NonCopyable {
 public:
  virtual ~Replicas() = default;
  /// unshard() starts to gather a bucket's weights, which stay until reshard(). Wait with the bucket's finish_gather().
  virtual void unshard(Dev& /*dev*/, detail::ShardedBucket<Dev>& /*bucket*/) {}
  virtual void reshard(Dev& /*dev*/, detail::ShardedBucket<Dev>& /*bucket*/) {}
  /// Called after the optimizer, or code outside the step, has written weights.
  virtual void updated(Dev& /*dev*/) {}
  /// Call it before code outside the step reads or writes weights. Returns when no collective uses the weights and all
  /// replicas have the same weights.
  virtual void synchronize(Dev& /*dev*/) {}
  /// Sums partial norms over replicas, in place.
  virtual void sum(Dev& /*dev*/, View<Dev> /*sums*/) {}
  /// Turns the counts of this replica's samples, in place, into the global counts, by which losses are divided.
  virtual void count(Dev& dev, Comm<Dev>& group, View<Dev> counts) {
    if (group.size() > 1) group.all_reduce(dev, counts).wait();
  }
  /// Returns whether the current step will change nothing on any rank.
  [[nodiscard]] virtual bool skips() const { return false; }
};

/// Propagates the overflow flag of exact sums to all ranks of a group.
template <class Dev>
void all_reduce_overflow(Dev& dev, ParameterStore<Dev>& store, Comm<Dev>& group) {
  if (auto flag = store.overflow()) group.all_reduce(dev, flag, Reduce::max).wait();
}

namespace detail {
template <class Dev>
void check_has_replicas(const ParameterStore<Dev>& store, const Replicas<Dev>* replicas) {
  check(replicas != nullptr || !store.is_sharded(),
        "a store that is sharded over replicas is used without DataParallel, which moves shares");
}
}  // namespace detail

}  // namespace dhp
