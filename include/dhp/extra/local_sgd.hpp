// LocalSgdReducer: replicas step independently and average their weights from time to time (Stich 2019, "Local SGD
// converges fast and communicates little"). With an outer optimizer this is DiLoCo (Douillard et al. 2023): the
// replicas' mean change since the last average is the gradient of an outer step with Nesterov momentum.
#pragma once

#include <dhp/extra/packed_sum.hpp>
#include <dhp/ops/elementwise.hpp>
#include <dhp/ops/step.hpp>
#include <dhp/parallel/reducer.hpp>
#include <dhp/parallel/trainable.hpp>

#include <utility>

namespace dhp {

struct LocalSgd {
  int every = 8;  ///< local steps between averages
  /// With learning rate 1 and no momentum, weights become their mean over replicas.
  double outer_learning_rate = 1;
  double outer_momentum = 0;  ///< DiLoCo uses 0.9, with an outer learning rate of 0.7
};

namespace detail {
/// A replica's gradients are the mean over its own samples; all replicas have equal weight in the average. Replicas
/// share step decisions, clipping and norms, which are root mean squares over replicas. Running statistics of batch
/// norms are summed in each step, and optimizer state stays local. Weights differ between averages: evaluations and
/// saves call Replicas::synchronize(), which averages first and restarts the count of steps. Throws Error for exact
/// sums, and for 16-bit values, because only the optimizer has their master weights.
template <class Dev>
class LocalSgdReducer final : public Replicas<Dev> {
 public:
  /// Keeps pointers to dev and store.
  LocalSgdReducer(Dev& dev, ParameterStore<Dev>& store, Comm<Dev> group, LocalSgd options)
      : dev_(&dev),
        store_(&store),
        group_(std::move(group)),
        options_(options),
        statistics_(PackedSum<Dev>::of_running_statistics(dev, store)),
        flat_(Tensor<Dev>::persistent(dev, store.accumulation(), {store.size()})) {
    check_not_sharded(store);
    check(options.every >= 1, "weights cannot be averaged every ", options.every,
          " steps; 1 or more would be right");
    check(options.outer_learning_rate > 0 && options.outer_momentum >= 0 &&
              options.outer_momentum < 1,
          "an outer step of learning rate ", options.outer_learning_rate, " and momentum ",
          options.outer_momentum, " is wrong; the rate is above 0, the momentum 0 to below 1");
    check(!store.options().deterministic,
          "replicas that step alone have results that depend on their number, so exact sums cannot "
          "keep the bits; choose another reducer");
    check(store.options().compute == store.accumulation(),
          "local SGD averages weights of f32 or f64, not of ", store.options().compute,
          ", whose master weights are in the optimizer");
    if (has_outer_step()) {
      before_ = Tensor<Dev>::persistent(dev, store.accumulation(), {store.size()});
      momentum_ = Tensor<Dev>::persistent(dev, store.accumulation(), {store.size()});
      outer_ = make_step_state(dev, {.learning_rate = options.outer_learning_rate});
      copy_weights(dev, before_);
    }
  }

  void begin(const Step<Dev>& step) {
    check(!step.batches.empty(),
          "a replica without micro-batches has no samples to step on alone; choose a smaller "
          "micro-batch, or fewer replicas");
  }
  void ready(Range) {}
  void finish() {
    statistics_.sum(*dev_, group_);
    statistics_.put(*dev_);
    in_step_ = true;
  }

  void updated(Dev& dev) override {
    if (std::exchange(in_step_, false)) {
      if (++since_average_ == options_.every) average(dev);
      return;
    }
    since_average_ = 0;  // weights were loaded and are equal on all replicas
    if (!has_outer_step()) return;
    copy_weights(dev, before_);
    dev.fill_zero(momentum_.mut().bytes(), momentum_.size_bytes());
  }
  void synchronize(Dev& dev) override {
    if (since_average_ > 0) average(dev);
  }
  /// Computes a mean instead of a sum, so that norms are comparable with those of other reducers.
  void sum(Dev& dev, View<Dev> buffer) override { mean(dev, buffer); }
  /// Does nothing, because the loss is the mean over this replica's own samples.
  void count(Dev&, Comm<Dev>&, View<Dev>) override {}

 private:
  [[nodiscard]] bool has_outer_step() const {
    return options_.outer_learning_rate != 1 || options_.outer_momentum != 0;
  }
  void average(Dev& dev) {
    const auto scope = dev.scope("average of weights");
    since_average_ = 0;
    copy_weights(dev, flat_);
    if (!has_outer_step()) {
      mean(dev, flat_.mut());
      return set_weights(dev, flat_);
    }
    scale(dev, -1, flat_.mut());
    axpy(dev, 1, before_.view(), flat_.mut());  // this replica's change, negated
    mean(dev, flat_.mut());
    set_weights(dev, before_);
    sgd_update(dev, {.momentum = options_.outer_momentum, .nesterov = true}, store_->trained(),
               outer_.view(), {}, flat_.view(), momentum_.mut(), {});
    copy_weights(dev, before_);
  }
  void mean(Dev& dev, View<Dev> buffer) {
    if (group_.size() == 1) return;
    group_.all_reduce(dev, buffer).wait();
    scale(dev, 1.0 / group_.size(), buffer);
  }
  void copy_weights(Dev& dev, Tensor<Dev>& to) {
    for (const auto& held : store_->held())
      copy(dev, held.value, ParameterStore<Dev>::part(to, held.range));
  }
  void set_weights(Dev& dev, Tensor<Dev>& from) {
    for (const auto& held : store_->held())
      copy(dev, ParameterStore<Dev>::part(from, held.range), held.value);
  }

  Dev* dev_;
  ParameterStore<Dev>* store_;
  Comm<Dev> group_;
  LocalSgd options_;
  PackedSum<Dev> statistics_;
  Tensor<Dev> flat_;      // weights or differences, indexed like the store
  Tensor<Dev> before_;    // the weights after the last outer step
  Tensor<Dev> momentum_;  // momentum of the outer steps
  Tensor<Dev> outer_;     // StepState of the outer steps
  int since_average_ = 0;
  bool in_step_ = false;  // true between finish() and the update
};
}  // namespace detail

template <class Dev>
[[nodiscard]] detail::LocalSgdReducer<Dev> make_reducer(Dev& dev, ParameterStore<Dev>& store,
                                                        Comm<Dev> group, const LocalSgd& options) {
  return {dev, store, std::move(group), options};
}

}  // namespace dhp
