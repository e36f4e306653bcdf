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
    auto losses = inner_->forward_backward(dev, shared(dev, step),
                                           [&](Range range) { reducer_.ready(range); });
    reducer_.finish();
    for (const auto& parameter : store().parameters()) ready(parameter->range);
    return losses;
  }

  std::vector<MicroBatchLoss> evaluate(Dev& dev, const Step<Dev>& step) {
    return inner_->evaluate(dev, step);
  }
  void replay(Dev& dev, const Step<Dev>& step) { inner_->replay(dev, step); }

 private:
  /// The step with what only all replicas together know: the counts of the global batch, and whether each
  /// of them has as many micro-batches.
  Step<Dev> shared(Dev& dev, const Step<Dev>& step) {
    Step<Dev> global = step;
    auto numbers = counts_of(step.batches, term_names());
    if (replicas_.size() > 1) {
      const auto mine = static_cast<std::int64_t>(step.batches.size());
      numbers.insert(numbers.end(), {mine, mine * mine});
      const auto entries = static_cast<std::int64_t>(numbers.size());
      auto total = Tensor<Dev>::from_host(dev, {entries}, numbers);
      replicas_.all_reduce(dev, total.mut()).wait();
      numbers = total.template to_host<std::int64_t>(dev);
      const auto squares = numbers.back();
      numbers.pop_back();
      const auto sum = numbers.back();
      numbers.pop_back();
      global.equal_shares = sum * sum == squares * replicas_.size();  // else it is smaller
    }
    if (step.counts.empty()) global.counts = std::move(numbers);
    return global;
  }

  Inner* inner_;
  Comm<Dev> replicas_;
  decltype(make_reducer(std::declval<Dev&>(), std::declval<ParameterStore<Dev>&>(),
                        std::declval<Comm<Dev>>(), std::declval<ReducerOptions>())) reducer_;
};

}  // namespace dhp
