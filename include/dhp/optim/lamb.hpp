// LAMB (You et al. 2020, "Large batch optimization for deep learning: training BERT in 76 minutes",
// algorithm 2): Adam's direction, scaled for each weight by |w| / |direction|. Biases and norms use 1.
#pragma once

#include <dhp/optim/adamw.hpp>

namespace dhp {

struct LambOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 0.01;
};

template <class Dev>
class Lamb final : public BufferedOptimizer<Dev> {
 public:
  Lamb(Dev& dev, ParameterStore<Dev>& store, Norms<Dev> norms, LambOptions options)
      : BufferedOptimizer<Dev>(dev, store, {"exp_avg", "exp_avg_sq"}),
        options_(options),
        norms_(std::move(norms)) {}

  [[nodiscard]] std::string name() const override { return "lamb"; }
  void step(Dev& dev, ConstView<Dev>, ConstView<Dev> state) override {
    auto& store = this->store_;
    const auto masters = this->masters();
    // It overwrites the gradients, which are not needed again.
    const auto direction = store.gradients();
    lamb_direction(dev, adam_update(options_), store.trained(), state, direction, this->buffer(0),
                   this->buffer(1), masters, direction);
    const auto directions = norms_.squares(dev, store, direction);
    const auto weights = norms_.weight_squares(dev, store, masters);
    Tensor<Dev> rates(dev, DType::f64, weights.shape());
    lamb_rates(dev, state, weights.view(), directions.view(), rates.mut());
    apply_direction(dev, store.trained(), state, rates.view(), direction, masters);
  }

 private:
  LambOptions options_;
  Norms<Dev> norms_;
};

}  // namespace dhp
