// D, the data axis: every replica runs its share of the micro-batches, then gradients are summed over the replicas.
// They are already divided by the *global* counts, so nothing is averaged. (LocalSgd replicas divide by their own
// counts.)
#pragma once

#include <dhp/parallel/reducer_choice.hpp>
#include <dhp/parallel/trainable.hpp>

namespace dhp {

template <class Dev, detail::ReportsReady<Dev> Inner, class ReducerOptions = ReducerChoice>
class DataParallel {
 public:
  DataParallel(Dev& dev, Inner& inner, Comm<Dev> replicas, ReducerOptions options = {})
      : inner_(&inner),
        replicas_(std::move(replicas)),
        reducer_(make_reducer(dev, inner.store(), replicas_, options)) {}

  [[nodiscard]] std::vector<std::string> term_names() const { return inner_->term_names(); }
  [[nodiscard]] ParameterStore<Dev>& store() { return inner_->store(); }

  Tensor<Dev> forward_backward(Dev& dev, const Step<Dev>& step) {
    auto counts = detail::device_counts(dev, step, term_names());
    const auto* const exchange = store().exchange();
    const bool alone = exchange != nullptr && exchange->steps_alone();
    if (replicas_.size() > 1 && !alone) replicas_.all_reduce(dev, counts.mut()).wait();
    auto global = step;
    global.counts = counts.view();
    // With unequal shares, layers that wait for other replicas must refuse to; some replica detects it here.
    const auto mine = static_cast<std::int64_t>(step.batches.size());
    global.context.equal_shares =
        replicas_.size() == 1 || mine * replicas_.size() == step.micro_batches;
    if constexpr (requires { reducer_.begin(step); }) reducer_.begin(step);
    auto losses = inner_->forward_backward(dev, global, [&](Range range) {
      inner_->store().complete_gradients(dev, range);
      reducer_.ready(range);
    });
    reducer_.finish();
    return losses;
  }

  Tensor<Dev> evaluate(Dev& dev, const Step<Dev>& step) { return inner_->evaluate(dev, step); }
  [[nodiscard]] std::vector<Tensor<Dev>> predict(
      Dev& dev, const Step<Dev>& step) requires detail::Predicts<Inner, Dev> {
    return inner_->predict(dev, step);
  }
  void replay(Dev& dev, const Step<Dev>& step) { inner_->replay(dev, step); }

 private:
  Inner* inner_;
  Comm<Dev> replicas_;
  decltype(make_reducer(std::declval<Dev&>(), std::declval<ParameterStore<Dev>&>(),
                        std::declval<Comm<Dev>>(), std::declval<ReducerOptions>())) reducer_;
};

}  // namespace dhp
