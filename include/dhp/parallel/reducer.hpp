// Reducers sum gradients over the data axis: Plain after the backward pass, Bucketed during it.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/comm/progress.hpp>
#include <dhp/nn/replicas.hpp>

#include <optional>
#include <vector>

namespace dhp {

/// ready(range) is called for each reduce action: this replica's gradients of the range are complete. finish() returns
/// when every gradient is the sum over all replicas. An optional begin(step) is called before each step. A reducer that
/// exchanges more than sums derives from Replicas.
template <class R>
concept Reducer = requires(R& reducer, Range range) {
  reducer.ready(range);
  reducer.finish();
};

namespace detail {
/// Throws if replicas shard the store, because only the sharded reducer moves shares.
template <class Dev>
void check_not_sharded(const ParameterStore<Dev>& store) {
  check(!store.is_sharded(),
        "a reducer of whole gradients was given a store that is sharded over replicas; leave the "
        "choice of the reducer to DataParallel");
}

/// Sums all gradients after the backward pass.
template <class Dev>
class PlainReducer {
 public:
  PlainReducer(Dev& dev, ParameterStore<Dev>& store, Comm<Dev> group)
      : dev_(&dev), store_(&store), group_(std::move(group)) {
    check_not_sharded(store);
  }

  void ready(Range) {}
  void finish() {
    const Range all{0, store_->size()};
    const auto summands = store_->summands(all);
    store_->notify_sum(*dev_, summands, all.first);
    for (auto summand : summands) group_.all_reduce(*dev_, summand).wait();
    all_reduce_overflow(*dev_, *store_, group_);
    store_->finalize_gradients(*dev_, all);
  }

 private:
  Dev* dev_;
  ParameterStore<Dev>* store_;
  Comm<Dev> group_;
};
}  // namespace detail

struct Plain {};

template <class Dev>
[[nodiscard]] detail::PlainReducer<Dev> make_reducer(Dev& dev, ParameterStore<Dev>& store,
                                                     Comm<Dev> group, Plain) {
  return {dev, store, std::move(group)};
}

struct Bucketed {
  std::size_t bytes = std::size_t{25} << 20;  ///< minimum size of a bucket of gradients
};

/// Cuts the store into buckets, from its end. A bucket's all-reduce starts when it and all earlier buckets are ready,
/// so every replica starts them in the same order.
template <class Dev>
class BucketedReducer {
 public:
  BucketedReducer(Dev& dev, ParameterStore<Dev>& store, Comm<Dev> group, Bucketed options)
      : dev_(&dev), store_(&store), group_(std::move(group)) {
    detail::check_not_sharded(store);
    if (group_.size() > 1) progress_.emplace(group_);
    const auto element = size_of(store.accumulation());
    const auto& parameters = store.parameters();
    std::int64_t last = store.size();
    int waiting = 0;
    for (std::size_t at = parameters.size(); at-- > 0;) {
      if (!parameters[at]->spec.frozen) ++waiting;
      const auto first = parameters[at]->range.first;
      const auto bytes = detail::as_size(last - first) * element;
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
    all_reduce_overflow(*dev_, *store_, group_);
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
    int parameters, waiting;
    std::vector<Event<Dev>> events;
  };
  void start(Bucket& bucket) {
    const auto summands = store_->summands(bucket.range);
    store_->notify_sum(*dev_, summands, bucket.range.first);
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

template <class Dev>
[[nodiscard]] BucketedReducer<Dev> make_reducer(Dev& dev, ParameterStore<Dev>& store,
                                                Comm<Dev> group, const Bucketed& options) {
  return {dev, store, std::move(group), options};
}

}  // namespace dhp
