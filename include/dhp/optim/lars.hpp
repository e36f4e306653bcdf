// The LARS optimizer (You, Gitman, Ginsburg 2017, "Large batch training of convolutional networks", algorithm 1).
// m = mu m + rate (g + decay w), w -= m. Weights: rate = lr * trust * |w| / (|g| + decay * |w|). Others: lr, no decay.
#pragma once

#include <dhp/optim/optimizer.hpp>

namespace dhp {

struct LarsOptions {
  double momentum = 0.9, weight_decay = 0, trust = 0.001;
};

namespace detail {
template <class Dev>
class Lars final : public BufferedOptimizer<Dev> {
 public:
  Lars(Dev& dev, ParameterStore<Dev>& store, Norms<Dev> norms, LarsOptions options)
      : BufferedOptimizer<Dev>(dev, store, {"momentum_buffer"}),
        options_(options),
        norms_(std::move(norms)) {
    check(options.momentum >= 0 && options.weight_decay >= 0 && options.trust > 0,
          "momentum and weight decay of LARS are 0 or more and its trust is above 0, got ",
          options.momentum, ", ", options.weight_decay, " and ", options.trust);
  }

  [[nodiscard]] std::string name() const override { return "lars"; }
  [[nodiscard]] std::string settings() const override {
    return concat("momentum ", options_.momentum, ", weight decay ", options_.weight_decay,
                  ", trust ", options_.trust);
  }
  void prepare(Dev& dev, ConstView<Dev> gradients, ConstView<Dev> state) override {
    const auto weights = norms_.weight_squares(dev, this->store_, this->masters());
    rates_ = Tensor<Dev>(dev, DType::f64, weights.shape());
    lars_rates(dev, {.trust = options_.trust, .weight_decay = options_.weight_decay}, state,
               weights.view(), gradients, rates_.mut());
  }
  void apply(Dev& dev, ConstView<Dev> state) override {
    auto& store = this->store_;
    const auto rates = this->take(rates_);
    sgd_update(dev,
               {.momentum = options_.momentum,
                .weight_decay = options_.weight_decay,
                .rate_in_momentum = true},
               store.trained(), state, rates.view(), store.gradients(), this->buffer(0),
               this->masters());
  }

 private:
  LarsOptions options_;
  Norms<Dev> norms_;
  Tensor<Dev> rates_;  // rates of the current step, from prepare() to apply()
};
}  // namespace detail

template <class Dev>
[[nodiscard]] std::unique_ptr<Optimizer<Dev>> make_optimizer(Dev& dev, ParameterStore<Dev>& store,
                                                             const Norms<Dev>& norms,
                                                             const LarsOptions& options) {
  return std::unique_ptr<Optimizer<Dev>>(new detail::Lars<Dev>(dev, store, norms, options));
}

}  // namespace dhp
