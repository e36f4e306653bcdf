// ShardedReducer (ZeRO: Rajbhandari et al. 2020): replicas shard optimizer state, gradients and weights by buckets. A
// bucket's gradients are reduce-scattered as soon as all replicas can; the optimizer updates this replica's shares;
// an all-gather collects the weights: after the update in stages 1 and 2, ahead of each use in stage 3. All replicas
// issue the same collectives in the same order, whatever their micro-batches.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/comm/progress.hpp>
#include <dhp/nn/parameter_store.hpp>
#include <dhp/parallel/trainable.hpp>

#include <algorithm>
#include <deque>
#include <map>
#include <vector>

namespace dhp::detail {
template <class Dev>
class ShardedReducer final : public Replicas<Dev> {
 public:
  /// Keeps pointers, and moves the store's shares from now on. Collective over the group.
  ShardedReducer(Dev& dev, ParameterStore<Dev>& store, Comm<Dev> group)
      : dev_(&dev), store_(&store), group_(std::move(group)), progress_(group_) {
    check(group_.size() == store.replica().size && group_.rank() == store.replica().rank,
          "the store is cut for replica ", store.replica().rank, " of ", store.replica().size,
          ", but the data axis has rank ", group_.rank(), " of ", group_.size());
    for (auto& bucket : store.buckets()) {
      states_.push_back({.bucket = bucket.get()});
      for (const auto& parameter : bucket->parameters())
        bucket_of_[parameter.get()] = states_.size() - 1;
    }
  }

  void begin(const Step<Dev>& step) {
    rounds_ = stage() == ZeroStage::optimizer
                  ? 1
                  : std::max<std::int64_t>(store_->replica().share_of(step.micro_batches), 1);
    round_ = 0;
    next_ = states_.size();
    for (auto& state : states_) state.added = state.ready = 0;
  }
  void accumulated(Dev&, const ParameterList<Dev>& layer) override {
    for (const auto& parameter : layer)
      if (auto* state = state_of(*parameter)) ++state->added;
    start_sums();
  }
  void ready(Range range) {
    for (auto& state : states_) {
      const auto& whole = state.bucket->range();
      if (whole.first <= range.first && range.last <= whole.last) ++state.ready;
    }
    start_sums();
  }
  void finish() {
    check(round_ == rounds_,
          "sharded reducer: finish() was called before all gradients were ready");
    const auto whole = store_->summands(store_->whole());
    store_->tell_sum(*dev_, whole, store_->whole().first);
    for (auto summand : whole)
      if (summand.count() > 0) group_.all_reduce(*dev_, summand).wait();
    if (auto flag = store_->overflow()) group_.all_reduce(*dev_, flag, Reduce::max).wait();
    for (auto& state : states_) state.bucket->finish_sums(*dev_);
    store_->finalize_gradients(*dev_, store_->summed());
    send_to_redundant_shards();
  }

  void gather(Dev& dev, const ParameterList<Dev>& layer) override {
    std::vector<std::size_t> needed;
    for (const auto& parameter : layer) {
      auto* state = state_of(*parameter);
      if (state == nullptr || ++state->users > 1) continue;
      needed.push_back(as_size(state - states_.data()));
    }
    if (stage() == ZeroStage::weights && !needed.empty()) gather_now(needed);
    for (const auto& parameter : layer)
      if (auto* state = state_of(*parameter)) wait_gathered(*state, dev);
  }
  void free(Dev& dev, const ParameterList<Dev>& layer) override {
    for (const auto& parameter : layer) {
      auto* state = state_of(*parameter);
      if (state == nullptr || --state->users > 0 || stage() != ZeroStage::weights) continue;
      idle_.push_back(as_size(state - states_.data()));
    }
    free_idle(dev, kept_idle);
  }
  void updated(Dev& dev) override {
    free_idle(dev, 0);
    if (stage() == ZeroStage::weights) return;
    synchronize(dev);  // a replica that had no micro-batch has not waited for the last ones
    for (std::size_t at = 0; at < states_.size(); ++at) start_gather(at);
  }
  void synchronize(Dev& dev) override {
    for (auto& state : states_) wait_gathered(state, dev);
  }
  void sum(Dev& dev, View<Dev> buffer) override { group_.all_reduce(dev, buffer).wait(); }

 private:
  /// Gathered buckets to keep without a user: the previous layer's and the next one's.
  static constexpr std::size_t kept_idle = 2;

  struct State {
    ShardedBucket<Dev>* bucket;
    std::size_t added = 0;  // parameters whose layers added a micro-batch's gradients
    std::size_t ready = 0;  // parameters that get no more in this step
    int users = 0;          // that need the weights now
    Event<Dev> gathered{};
    bool gathering = false;
  };

  [[nodiscard]] ZeroStage stage() const { return store_->options().sharding.stage; }
  [[nodiscard]] State* state_of(const ParameterState<Dev>& parameter) {
    const auto found = bucket_of_.find(&parameter);
    return found == bucket_of_.end() ? nullptr : &states_[found->second];
  }

  /// Sums run in rounds, each from the last bucket to the first. In the last round a bucket waits until all of it is
  /// ready. Earlier rounds bound memory.
  void start_sums() {
    while (round_ < rounds_) {
      while (next_ > 0) {
        auto& state = states_[next_ - 1];
        const auto parameters = state.bucket->parameters().size();
        const bool last = round_ + 1 == rounds_;
        const bool tied = state.bucket->parameters().front()->tied;
        const auto due = parameters * as_size(round_ + 1);
        if (state.ready < parameters && (last || (!tied && state.added < due))) return;
        if (last || !tied) sum_of(*state.bucket);
        --next_;
      }
      next_ = states_.size();
      ++round_;
    }
  }
  void sum_of(ShardedBucket<Dev>& bucket) {
    bucket.prepare_gradients(*dev_);
    const auto summands = bucket.summands(bucket.range());
    store_->tell_sum(*dev_, summands, bucket.range().first);
    // From stage 2 on, summands include the earlier sums.
    if (stage() != ZeroStage::optimizer)
      store_->tell_sum(*dev_, bucket.held_sums(), bucket.own().first, -1);
    std::vector<Event<Dev>> events;
    for (std::size_t at = 0; at < summands.size(); ++at)
      events.push_back(progress_.start(
          *dev_, Collective<Dev>::reduce_scatter(summands[at], bucket.held_sums()[at])));
    bucket.summing(std::move(events));
    // From stage 2 on, at most two buckets of gradients are in memory: this one and the next.
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

  void start_gather(std::size_t at) {
    auto& state = states_[at];
    auto& bucket = *state.bucket;
    if (state.gathering) return;
    if (stage() == ZeroStage::weights) {
      if (bucket.has_weights()) return;
      bucket.allocate_weights(*dev_);
    }
    state.gathered = progress_.start(
        *dev_, Collective<Dev>::all_gather(bucket.own_weights(), bucket.all_weights()));
    state.gathering = true;
  }
  /// Gathers a layer's buckets, and the next one in the same direction. With that, earlier layers' weights go first, so
  /// that their memory serves again. Without, the direction is about to change, and they are needed soon.
  void gather_now(const std::vector<std::size_t>& needed) {
    for (const auto at : needed) std::erase(idle_, at);
    const auto [first, last] = std::minmax_element(needed.begin(), needed.end());
    const bool forward = *first >= last_needed_;
    last_needed_ = *first;
    const bool ends = forward ? *last + 1 >= states_.size() : *first == 0;
    const auto next = ends ? 0 : forward ? *last + 1 : *first - 1;
    const bool ahead = !ends && states_[next].users == 0 && !states_[next].bucket->has_weights();
    if (ahead) free_idle(*dev_, 0);
    for (const auto at : needed) start_gather(at);
    if (!ahead) return;
    start_gather(next);
    idle_.push_back(next);
  }
  void wait_gathered(State& state, Dev& dev) {
    if (!state.gathering) return;
    state.gathered.wait(dev);
    state.gathering = false;
  }
  /// Frees gathered weights without a user, except for the last few.
  void free_idle(Dev& dev, std::size_t keep) {
    while (idle_.size() > keep) {
      auto& state = states_[idle_.front()];
      idle_.pop_front();
      wait_gathered(state, dev);
      state.bucket->free_weights();
    }
  }

  Dev* dev_;
  ParameterStore<Dev>* store_;
  Comm<Dev> group_;
  Progress<Dev> progress_;
  std::vector<State> states_;
  std::map<const ParameterState<Dev>*, std::size_t> bucket_of_;
  std::int64_t rounds_ = 1, round_ = 1;
  std::size_t next_ = 0;          // the bucket before it is the next to be summed
  std::deque<std::size_t> idle_;  // in the order of their last use
  std::size_t last_needed_ = 0;
  ShardedBucket<Dev>* summed_before_ = nullptr;
};
}  // namespace dhp::detail
