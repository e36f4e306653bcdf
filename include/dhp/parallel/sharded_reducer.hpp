// ShardedReducer (ZeRO: Rajbhandari et al. 2020): replicas shard optimizer state, gradients and weights by buckets. A
// reduce-scatter sums a bucket's gradients, the optimizer updates this replica's shares, and an all-gather collects the
// weights: after the update in ZeRO 1 and 2, before each use in ZeRO 3. The actions of a stage decide when (moves.hpp).
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/comm/progress.hpp>
#include <dhp/nn/parameter_store.hpp>
#include <dhp/parallel/trainable.hpp>

#include <vector>

namespace dhp::detail {
template <class Dev>
class ShardedReducer final : public Replicas<Dev> {
 public:
  /// Keeps pointers to `dev` and `store`. Collective over the group.
  ShardedReducer(Dev& dev, ParameterStore<Dev>& store, Comm<Dev> group)
      : dev_(&dev), store_(&store), group_(std::move(group)), progress_(group_) {
    check(group_.size() == store.replica().size && group_.rank() == store.replica().rank,
          "the store is cut for replica ", store.replica().rank, " of ", store.replica().size,
          ", but the data axis has rank ", group_.rank(), " of ", group_.size());
  }

  /// ZeRO 1 sums a bucket's gradients once; ZeRO 2 and 3 sum them after each micro-batch, which bounds memory.
  void ready(Range range) {
    for (auto& bucket : store_->buckets())
      if (bucket->range().first == range.first) sum_of(*bucket);
  }
  void finish() {
    const auto whole = store_->summands(store_->replicated_range());
    store_->notify_sum(*dev_, whole, store_->replicated_range().first);
    for (auto summand : whole)
      if (summand.count() > 0) group_.all_reduce(*dev_, summand).wait();
    all_reduce_overflow(*dev_, *store_, group_);
    for (auto& bucket : store_->buckets()) bucket->finish_sums(*dev_);
    store_->finalize_gradients(*dev_, store_->summed());
    send_to_redundant_shards();
  }

  void unshard(Dev& dev, ShardedBucket<Dev>& bucket) override {
    if (bucket.has_weights()) return;
    bucket.allocate_weights(dev);
    start_gather(bucket);
  }
  void reshard(Dev& dev, ShardedBucket<Dev>& bucket) override {
    bucket.finish_gather(dev);
    bucket.free_weights();
  }
  void updated(Dev& dev) override {
    if (stage() == ZeroStage::weights) return;
    synchronize(dev);  // a replica without micro-batches has not waited for the previous gathers
    for (auto& bucket : store_->buckets()) start_gather(*bucket);
  }
  void synchronize(Dev& dev) override {
    for (auto& bucket : store_->buckets()) bucket->finish_gather(dev);
  }
  void sum(Dev& dev, View<Dev> buffer) override { group_.all_reduce(dev, buffer).wait(); }

 private:
  [[nodiscard]] ZeroStage stage() const { return store_->options().sharding.stage; }

  void start_gather(ShardedBucket<Dev>& bucket) {
    bucket.gathering(progress_.start(
        *dev_, Collective<Dev>::all_gather(bucket.own_weights(), bucket.all_weights())));
  }
  void sum_of(ShardedBucket<Dev>& bucket) {
    bucket.prepare_gradients(*dev_);
    const auto summands = bucket.summands(bucket.range());
    store_->notify_sum(*dev_, summands, bucket.range().first);
    // In ZeRO 2 and 3, the summands include earlier sums of this step, which are not this replica's contribution.
    if (stage() != ZeroStage::optimizer)
      store_->notify_sum(*dev_, bucket.held_sums(), bucket.own().first, -1);
    std::vector<Event<Dev>> events;
    for (std::size_t at = 0; at < summands.size(); ++at)
      events.push_back(progress_.start(
          *dev_, Collective<Dev>::reduce_scatter(summands[at], bucket.held_sums()[at])));
    bucket.summing(std::move(events));
    // ZeRO 2 and 3 keep at most two buckets of gradients in memory: this one and the next.
    if (stage() != ZeroStage::optimizer && summed_before_ != nullptr)
      summed_before_->finish_sums(*dev_);
    summed_before_ = &bucket;
  }

  /// The preceding replicas update redundant copies of this replica's shares, with the same gradients.
  void send_to_redundant_shards() {
    const auto redundancy = store_->options().sharding.redundancy;
    const int me = group_.rank(), size = group_.size();
    for (int ahead = 1; ahead <= redundancy; ++ahead)
      group_.send(*dev_, clone<Dev>(*dev_, store_->gradients(store_->shares())),
                  (me - ahead + size) % size);
    for (int ahead = 1; ahead <= redundancy; ++ahead)
      group_.recv(*dev_, store_->gradients(store_->shares(ahead)), (me + ahead) % size);
  }

  Dev* dev_;
  ParameterStore<Dev>* store_;
  Comm<Dev> group_;
  Progress<Dev> progress_;
  ShardedBucket<Dev>* summed_before_ = nullptr;
};
}  // namespace dhp::detail
