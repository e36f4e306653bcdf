// LARS (You, Gitman, Ginsburg 2017, "Large batch training of convolutional networks", algorithm 1): the
// rate is scaled for each weight by trust * |w| / (|g| + decay * |w|); m = mu m + rate (g + decay w), w -= m.
// Biases and norms are not scaled and do not decay.
#pragma once

#include <dhp/optim/optimizer.hpp>

namespace dhp {

struct LarsOptions {
  double momentum = 0.9;
  double weight_decay = 0;
  double trust = 0.001;
};

template <class Dev>
class Lars final : public Optimizer<Dev> {
 public:
  Lars(Dev& dev, ParameterStore<Dev>& store, Norms<Dev> norms, LarsOptions options)
      : options_(options),
        store_(store),
        masters_(dev, store),
        norms_(std::move(norms)),
        momentum_(store.make_buffer(dev)) {}

  void step(Dev& dev, ConstView<Dev> gradients, ConstView<Dev> state) override {
    const auto weights = norms_.weight_squares(dev, store_, masters_.view());
    Tensor<Dev> rates(dev, DType::f64, weights.shape());
    lars_rates(dev, {.trust = options_.trust, .weight_decay = options_.weight_decay}, state,
               weights.view(), gradients, rates.mut());
    sgd_update(dev,
               {.momentum = options_.momentum,
                .weight_decay = options_.weight_decay,
                .rate_in_momentum = true},
               store_.trained(), state, rates.view(), store_.gradients(), momentum_.mut(),
               masters_.view());
  }
  [[nodiscard]] std::string name() const override { return "lars"; }
  std::vector<StateBuffer<Dev>> state() override {
    std::vector<StateBuffer<Dev>> state;
    masters_.add_state(state);
    state.push_back({"momentum_buffer", &momentum_});
    return state;
  }

  void values_changed(Dev& dev) override { masters_.refresh(dev); }

 private:
  LarsOptions options_;
  ParameterStore<Dev>& store_;
  MasterWeights<Dev> masters_;
  Norms<Dev> norms_;
  Tensor<Dev> momentum_;
};

template <class Dev>
[[nodiscard]] std::unique_ptr<Optimizer<Dev>> make_optimizer(Dev& dev, ParameterStore<Dev>& store,
                                                             const Norms<Dev>& norms,
                                                             const LarsOptions& options) {
  return std::make_unique<Lars<Dev>>(dev, store, norms, options);
}

}  // namespace dhp
