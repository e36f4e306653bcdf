// Reducers sum gradients over the data axis. ready(range): this replica will add no more to the range.
// finish(): returns when every gradient is the sum over all replicas. The plain reducer sums after the backward
// pass; the bucketed one overlaps the sums with it; the sharded one leaves each replica a share of them.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/comm/progress.hpp>
#include <dhp/nn/parameter_store.hpp>
#include <dhp/parallel/sharded_reducer.hpp>

#include <concepts>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

namespace dhp {

template <class R>
concept Reducer = requires(R& reducer, Range range) {
  reducer.ready(range);
  reducer.finish();
};

/// Propagates the overflow flag of order-free sums to all replicas.
template <class Dev>
void share_overflow(Dev& dev, ParameterStore<Dev>& store, Comm<Dev>& group) {
  if (auto flag = store.overflow()) group.all_reduce(dev, flag, Reduce::max).wait();
}

struct Plain {};

/// Sums everything at once, after the backward pass.
template <class Dev>
class PlainReducer {
 public:
  PlainReducer(Dev& dev, ParameterStore<Dev>& store, Comm<Dev> group)
      : dev_(&dev), store_(&store), group_(std::move(group)) {}

  void ready(Range) {}
  void finish() {
    const Range all{0, store_->size()};
    const auto summands = store_->summands(all);
    store_->sign(*dev_, summands, all.first);
    for (auto summand : summands) group_.all_reduce(*dev_, summand).wait();
    share_overflow(*dev_, *store_, group_);
    store_->finalize_gradients(*dev_, all);
  }

 private:
  Dev* dev_;
  ParameterStore<Dev>* store_;
  Comm<Dev> group_;
};

struct Bucketed {
  std::size_t bytes = std::size_t{25} << 20;  ///< smallest size of a bucket of gradients
};

/// Cuts the store into buckets, from its end. The all-reduce of a bucket starts when it and all buckets before it
/// are ready, so every replica starts them in the same order.
template <class Dev>
class BucketedReducer {
 public:
  BucketedReducer(Dev& dev, ParameterStore<Dev>& store, Comm<Dev> group, Bucketed options)
      : dev_(&dev), store_(&store), group_(std::move(group)) {
    if (group_.size() > 1) progress_.emplace(group_);
    const auto element = size_of(store.accumulation());
    const auto& parameters = store.parameters();
    std::int64_t last = store.size();
    int waiting = 0;
    for (std::size_t at = parameters.size(); at-- > 0;) {
      if (!parameters[at]->spec.frozen) ++waiting;
      const auto first = parameters[at]->range.first;
      const auto bytes = static_cast<std::size_t>(last - first) * element;
      if (waiting == 0 || (bytes < options.bytes && at > 0)) continue;
      buckets_.push_back({{first, last}, waiting, waiting, {}});
      last = first;
      waiting = 0;
    }
  }

  void ready(Range range) {
    for (auto& bucket : buckets_)
      if (bucket.range.first <= range.first && range.last <= bucket.range.last) --bucket.waiting;
    while (next_ < buckets_.size() && buckets_[next_].waiting == 0) start(buckets_[next_++]);
  }

  void finish() {
    check(next_ == buckets_.size(), "reducer: finish() was called before bucket ", next_, " of ",
          buckets_.size(), " was ready");
    share_overflow(*dev_, *store_, group_);
    for (auto& bucket : buckets_) {
      for (auto& event : bucket.events) event.wait(*dev_);
      bucket.events.clear();
      store_->finalize_gradients(*dev_, bucket.range);
      bucket.waiting = bucket.parameters;
    }
    next_ = 0;
  }

  [[nodiscard]] std::size_t buckets() const { return buckets_.size(); }

 private:
  struct Bucket {
    Range range;
    int parameters;
    int waiting;
    std::vector<Event<Dev>> events;
  };
  void start(Bucket& bucket) {
    const auto summands = store_->summands(bucket.range);
    store_->sign(*dev_, summands, bucket.range.first);
    if (!progress_) return;
    for (auto summand : summands)
      bucket.events.push_back(progress_->start(*dev_, Collective<Dev>::all_reduce(summand)));
  }

  Dev* dev_;
  ParameterStore<Dev>* store_;
  Comm<Dev> group_;
  std::optional<Progress<Dev>> progress_;
  std::vector<Bucket> buckets_;
  std::size_t next_ = 0;
};

/// For stores that are not sharded.
using ReducerChoice = std::variant<Plain, Bucketed>;

/// Chosen at run time.
template <class Dev>
class ChosenReducer {
 public:
  ChosenReducer(Dev& dev, ParameterStore<Dev>& store, Comm<Dev> group,
                const ReducerChoice& choice) {
    if (store.is_sharded())
      sharded_ = std::make_unique<ShardedReducer<Dev>>(dev, store, std::move(group));
    else if (const auto* bucketed = std::get_if<Bucketed>(&choice))
      bucketed_.emplace(dev, store, std::move(group), *bucketed);
    else plain_.emplace(dev, store, std::move(group));
  }
  void begin(std::int64_t micro_batches) {
    if (sharded_) sharded_->begin(micro_batches);
  }
  void ready(Range range) {
    if (sharded_) sharded_->ready(range);
    else if (bucketed_) bucketed_->ready(range);
    else plain_->ready(range);
  }
  void finish() {
    if (sharded_) sharded_->finish();
    else if (bucketed_) bucketed_->finish();
    else plain_->finish();
  }

 private:
  std::optional<PlainReducer<Dev>> plain_;
  std::optional<BucketedReducer<Dev>> bucketed_;
  std::unique_ptr<ShardedReducer<Dev>> sharded_;
};

/// Overload this for the options of a reducer of your own.
template <class Dev>
[[nodiscard]] ChosenReducer<Dev> make_reducer(Dev& dev, ParameterStore<Dev>& store, Comm<Dev> group,
                                              const ReducerChoice& choice) {
  return {dev, store, std::move(group), choice};
}

}  // namespace dhp
