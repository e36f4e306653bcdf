// DelayedReducer: uses the sum of a step's gradients a fixed number of steps later, so that whole steps hide the
// all-reduce (Agarwal and Duchi 2011, "Distributed delayed stochastic optimization"). The stale synchronous parallel of
// Ho et al. 2013 only bounds the delay. All replicas use the same sums, so their weights stay equal.
#pragma once

#include <dhp/comm/progress.hpp>
#include <dhp/extra/packed_sum.hpp>
#include <dhp/parallel/reducer.hpp>

#include <optional>
#include <utility>
#include <vector>

namespace dhp {

struct Delayed {
  int steps = 1;  ///< steps between computing and using a gradient; 0: no delay
};

namespace detail {
/// Step t uses the gradients of step t - steps. The first steps, also after weights were loaded, have no such gradients
/// and are skipped. Running statistics of batch norms are not delayed. Holds steps + 1 copies of the gradients. Throws
/// Error for exact sums and for f16, whose loss scale may change during the delay.
template <class Dev>
class DelayedReducer final : public Replicas<Dev> {
 public:
  /// Keeps pointers to dev and store. Collective over the group.
  DelayedReducer(Dev& dev, ParameterStore<Dev>& store, Comm<Dev> group, Delayed options)
      : dev_(&dev),
        store_(&store),
        group_(std::move(group)),
        delay_(as_size(options.steps)),
        statistics_(PackedSum<Dev>::of_running_statistics(dev, store)) {
    check_not_sharded(store);
    check(options.steps >= 0, "gradients cannot be delayed by ", options.steps,
          " steps; 0 or more would be right");
    check(!store.options().deterministic,
          "delayed gradients have no exact sums; choose a reducer that is not late");
    check(store.options().compute != DType::f16,
          "a delayed gradient in f16 would be scaled by the loss scale of an earlier step; choose "
          "bf16, or a reducer that is not late");
    for (std::size_t at = 0; at <= delay_; ++at)
      under_way_.push_back(
          {Tensor<Dev>::persistent(dev, store.accumulation(), {store.size()}), {}});
    if (group_.size() > 1) progress_.emplace(group_);
  }

  void ready(Range) {}
  void finish() {
    if (delay_ > 0) statistics_.sum(*dev_, group_);
    auto& now = under_way_[step_ % under_way_.size()];
    const auto gradients = store_->gradients();
    now.arrive(*dev_);
    copy(*dev_, gradients, now.sum.mut());
    if (progress_) now.event = progress_->start(*dev_, Collective<Dev>::all_reduce(now.sum.mut()));
    has_gradients_ = step_ >= delay_;
    ++step_;
    in_step_ = true;
    // The next slot of the ring holds the oldest sum.
    auto& due = under_way_[step_ % under_way_.size()];
    if (has_gradients_) {
      due.arrive(*dev_);
      copy(*dev_, due.sum, gradients);
    } else {  // this replica's own gradients decide no step
      dev_->fill_zero(gradients.bytes(), gradients.size_bytes());
    }
    if (delay_ > 0) statistics_.put(*dev_);
  }

  /// If finish() was not called before, weights were loaded, and the delay starts anew.
  void updated(Dev&) override {
    if (!std::exchange(in_step_, false)) step_ = 0;
  }
  [[nodiscard]] bool skips() const override { return !has_gradients_; }

 private:
  struct Sum {
    Tensor<Dev> sum;
    std::optional<Event<Dev>> event;
    void arrive(Dev& dev) {
      if (event) event->wait(dev);
      event.reset();
    }
  };

  Dev* dev_;
  ParameterStore<Dev>* store_;
  Comm<Dev> group_;
  std::size_t delay_;
  PackedSum<Dev> statistics_;
  std::vector<Sum> under_way_;  // ring of sums in flight, indexed by step
  std::optional<Progress<Dev>> progress_;
  std::size_t step_ = 0;  // steps since the start or since weights were loaded
  bool in_step_ = false;  // true between finish() and the update
  bool has_gradients_ = false;
};
}  // namespace detail

template <class Dev>
[[nodiscard]] detail::DelayedReducer<Dev> make_reducer(Dev& dev, ParameterStore<Dev>& store,
                                                       Comm<Dev> group, const Delayed& options) {
  return {dev, store, std::move(group), options};
}

}  // namespace dhp
