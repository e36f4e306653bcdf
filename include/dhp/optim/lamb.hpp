// The LAMB optimizer (You et al. 2020, "Large batch optimization for deep learning: training BERT in 76 minutes",
// algorithm 2): Adam's direction, scaled per weight tensor by |w| / |direction|. Biases and norms are not scaled.
// prepare() computes only the direction's norm; apply() computes the direction again instead of storing it.
#pragma once

#include <dhp/optim/adamw.hpp>

namespace dhp {

struct LambOptions {
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-6, weight_decay = 0.01;
};

namespace detail {
template <class Dev>
class Lamb final : public BufferedOptimizer<Dev> {
 public:
  Lamb(Dev& dev, ParameterStore<Dev>& store, Norms<Dev> norms, LambOptions options)
      : BufferedOptimizer<Dev>(dev, store, {"exp_avg", "exp_avg_sq"}),
        update_(adam_update(options)),
        norms_(std::move(norms)) {}

  [[nodiscard]] std::string name() const override { return "lamb"; }
  [[nodiscard]] std::string settings() const override { return adam_settings(update_); }
  void prepare(Dev& dev, ConstView<Dev>, ConstView<Dev> state) override {
    const auto squares =
        norms_.squares(dev, this->store_, 2, [&](const SegmentTable<Dev>& counted, View<Dev> sums) {
          const auto tiles = counted.sum_count();
          lamb_squares(dev, update_, counted, state, this->store_.gradients(), this->buffer(0),
                       this->buffer(1), this->masters(), sums.slice(0, tiles),
                       sums.slice(tiles, 2 * tiles));
        });
    const auto parameters = squares.count() / 2;
    rates_ = Tensor<Dev>(dev, DType::f64, {parameters});
    lamb_rates(dev, state, squares.view().slice(0, parameters),
               squares.view().slice(parameters, 2 * parameters), rates_.mut());
  }
  void apply(Dev& dev, ConstView<Dev> state) override {
    auto& store = this->store_;
    const auto rates = this->take(rates_);
    lamb_update(dev, update_, store.trained(), state, rates, store.gradients(), this->buffer(0),
                this->buffer(1), this->masters());
  }

 private:
  AdamUpdate update_;
  Norms<Dev> norms_;
  Tensor<Dev> rates_;  // rates of the current step, from prepare() to apply()
};
}  // namespace detail

template <class Dev>
[[nodiscard]] std::unique_ptr<Optimizer<Dev>> make_optimizer(Dev& dev, ParameterStore<Dev>& store,
                                                             const Norms<Dev>& norms,
                                                             const LambOptions& options) {
  return std::unique_ptr<Optimizer<Dev>>(new detail::Lamb<Dev>(dev, store, norms, options));
}

}  // namespace dhp
