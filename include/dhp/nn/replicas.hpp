// Replicas: what replicas exchange in addition to sums of gradients, for code that uses weights and gradients: a stage,
// norms, a trainer, a checkpoint. DataParallel has it. Null: nothing is exchanged but sums.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/nn/parameter_store.hpp>

namespace dhp {

/// A base of reducers. All replicas make the same calls in the same order; by default they do nothing.
template <class Dev>
class Replicas : detail::NonCopyable {
 public:
  virtual ~Replicas() = default;
  /// unshard() starts to gather a bucket's weights, which stay until reshard(); wait with the bucket's finish_gather().
  virtual void unshard(Dev& /*dev*/, detail::ShardedBucket<Dev>& /*bucket*/) {}
  virtual void reshard(Dev& /*dev*/, detail::ShardedBucket<Dev>& /*bucket*/) {}
  /// Called after weights were written: by the optimizer, or from outside.
  virtual void updated(Dev& /*dev*/) {}
  /// Call before reading or writing weights from outside. Returns when no collective uses them and all replicas have
  /// the same.
  virtual void synchronize(Dev& /*dev*/) {}
  /// Sums partial norms over replicas, in place.
  virtual void sum(Dev& /*dev*/, View<Dev> /*sums*/) {}
  /// Makes the counts that losses are divided by from those of this replica's samples, in place.
  virtual void count(Dev& dev, Comm<Dev>& group, View<Dev> counts) {
    if (group.size() > 1) group.all_reduce(dev, counts).wait();
  }
  /// Whether the step under way changes nothing, on any rank.
  [[nodiscard]] virtual bool skips() const { return false; }
};

namespace detail {
template <class Dev>
void check_has_replicas(const ParameterStore<Dev>& store, const Replicas<Dev>* replicas) {
  check(replicas != nullptr || !store.is_sharded(),
        "a store that is sharded over replicas is used without DataParallel, which moves shares");
}
}  // namespace detail

}  // namespace dhp
