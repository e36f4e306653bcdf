// D, the data axis: every replica runs its share of the micro-batches; gradients are summed over the
// replicas. They are already divided by the *global* counts, so nothing is averaged afterwards.
#pragma once

#include <dhp/parallel/reducer.hpp>
#include <dhp/parallel/trainable.hpp>

namespace dhp {

template <class Dev, Trainable<Dev> Inner, class ReducerOptions = Bucketed>
class DataParallel {
 public:
  DataParallel(Dev& dev, Inner& inner, Comm<Dev> replicas, ReducerOptions options = {})
      : inner_(&inner),
        replicas_(std::move(replicas)),
        reducer_(make_reducer(dev, inner.store(), replicas_, options)) {}

  [[nodiscard]] std::vector<std::string> term_names() const { return inner_->term_names(); }
  [[nodiscard]] ParameterStore<Dev>& store() { return inner_->store(); }

  template <class Ready>
  Tensor<Dev> forward_backward(Dev& dev, const Step<Dev>& step, Ready&& ready) {
    const auto counts = global_counts(dev, step);
    auto global = with_shares(dev, step);
    global.counts = counts.view();
    auto losses =
        inner_->forward_backward(dev, global, [&](Range range) { reducer_.ready(range); });
    reducer_.finish();
    for (const auto& parameter : store().parameters()) ready(parameter->range);
    return losses;
  }

  Tensor<Dev> evaluate(Dev& dev, const Step<Dev>& step) { return inner_->evaluate(dev, step); }
  void replay(Dev& dev, const Step<Dev>& step) { inner_->replay(dev, step); }

 private:
  Tensor<Dev> global_counts(Dev& dev, const Step<Dev>& step) {
    auto counts = device_counts(dev, step, term_names());
    if (replicas_.size() > 1) replicas_.all_reduce(dev, counts.mut()).wait();
    return counts;
  }
  /// The step with what only all replicas together know: whether each has as many micro-batches.
  Step<Dev> with_shares(Dev& dev, const Step<Dev>& step) {
    Step<Dev> global = step;
    const auto mine = static_cast<std::int64_t>(step.batches.size());
    const std::int64_t replicas = replicas_.size();
    if (replicas == 1) {
      global.micro_batches = mine;
    } else if (step.micro_batches >= 0) {
      global.equal_shares = step.micro_batches % replicas == 0;
      check(!global.equal_shares || mine * replicas == step.micro_batches, "this replica has ",
            mine, " of the step's ", step.micro_batches, " micro-batches, which ", replicas,
            " replicas should share evenly");
    } else {  // the host waits for the other replicas
      auto sums = Tensor<Dev>::from_host(dev, {2}, std::vector<std::int64_t>{mine, mine * mine});
      replicas_.all_reduce(dev, sums.mut()).wait();
      const auto found = sums.template to_host<std::int64_t>(dev);
      global.micro_batches = found[0];
      global.equal_shares = found[0] * found[0] == found[1] * replicas;  // else it is smaller
    }
    return global;
  }

  Inner* inner_;
  Comm<Dev> replicas_;
  decltype(make_reducer(std::declval<Dev&>(), std::declval<ParameterStore<Dev>&>(),
                        std::declval<Comm<Dev>>(), std::declval<ReducerOptions>())) reducer_;
};

}  // namespace dhp
