// D, the data axis: every replica runs its share of the micro-batches, and gradients are summed over the replicas.
// Ranks of the context axis count as replicas. Losses are divided by the *global* counts, so gradients need no average.
#pragma once

#include <dhp/parallel/any_reducer.hpp>
#include <dhp/parallel/trainable.hpp>

namespace dhp {

template <class Dev, detail::OfReplicas<Dev> Inner>
class DataParallel {
 public:
  /// options: the reducer's options; Bucketed if the replicas shard the store (ZeRO).
  template <class ReducerOptions = Bucketed>
  DataParallel(Dev& dev, Inner& inner, Comm<Dev> group, const ReducerOptions& options = {})
      : inner_(&inner),
        group_(std::move(group)),
        reducer_(detail::any_reducer(dev, inner.store(), group_, options)) {}

  [[nodiscard]] std::vector<std::string> term_names() const { return inner_->term_names(); }
  [[nodiscard]] ParameterStore<Dev>& store() { return inner_->store(); }
  [[nodiscard]] Replicas<Dev>* replicas() { return reducer_->replicas(); }

  Tensor<Dev> forward_backward(Dev& dev, const Step<Dev>& step) {
    auto counts = detail::device_counts(dev, step, term_names());
    const auto& replica = store().replica();
    // If replicas share samples (context axis), only the first of these replicas counts them.
    if (replica.rank % replica.sharing != 0)
      dev.fill_zero(counts.mut().bytes(), counts.size_bytes());
    Replicas<Dev> plain;
    (replicas() != nullptr ? *replicas() : plain).count(dev, group_, counts.mut());
    auto global = step;
    global.counts = counts.view();
    // Layers that wait for other replicas throw if shares are unequal. At least one replica detects that here.
    const auto mine = std::ssize(step.batches);
    global.context.equal_shares =
        group_.size() == 1 || mine * group_.size() == step.micro_batches * replica.sharing;
    reducer_->begin(step);
    auto losses = inner_->forward_backward(dev, global, replicas(), [&](Range range) {
      store().complete_gradients(dev, range);
      reducer_->ready(range);
    });
    reducer_->finish();
    return losses;
  }

  Tensor<Dev> evaluate(Dev& dev, const Step<Dev>& step) {
    if (replicas() != nullptr) replicas()->synchronize(dev);
    return inner_->evaluate(dev, step, replicas());
  }
  [[nodiscard]] std::vector<Tensor<Dev>> predict(
      Dev& dev, const Step<Dev>& step) requires detail::Predicts<Inner, Dev> {
    if (replicas() != nullptr) replicas()->synchronize(dev);
    return inner_->predict(dev, step, replicas());
  }
  void replay(Dev& dev, const Step<Dev>& step) { inner_->replay(dev, step, replicas()); }

 private:
  Inner* inner_;
  Comm<Dev> group_;
  detail::AnyReducerPointer<Dev> reducer_;
};

}  // namespace dhp
