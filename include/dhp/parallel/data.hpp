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
  std::vector<MicroBatchLoss> forward_backward(Dev& dev, const Step<Dev>& step, Ready&& ready) {
    Step<Dev> global = step;
    global.counts = global_counts(dev, step);
    auto losses =
        inner_->forward_backward(dev, global, [&](Range range) { reducer_.ready(range); });
    reducer_.finish();
    for (const auto& parameter : store().parameters()) ready(parameter->range);
    return losses;
  }

  std::vector<MicroBatchLoss> evaluate(Dev& dev, const Step<Dev>& step) {
    return inner_->evaluate(dev, step);
  }
  void replay(Dev& dev, const Step<Dev>& step) { inner_->replay(dev, step); }

 private:
  std::vector<std::int64_t> global_counts(Dev& dev, const Step<Dev>& step) {
    auto counts = counts_of(step.batches, term_names());
    if (replicas_.size() == 1) return counts;
    const auto terms = static_cast<std::int64_t>(counts.size());
    auto total = Tensor<Dev>::from_host(dev, {terms}, counts);
    replicas_.all_reduce(dev, total.mut()).wait();
    return total.template to_host<std::int64_t>(dev);
  }

  Inner* inner_;
  Comm<Dev> replicas_;
  decltype(make_reducer(std::declval<Dev&>(), std::declval<ParameterStore<Dev>&>(),
                        std::declval<Comm<Dev>>(), std::declval<ReducerOptions>())) reducer_;
};

}  // namespace dhp
