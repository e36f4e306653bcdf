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
class Lamb final : public Optimizer<Dev> {
 public:
  Lamb(Dev& dev, ParameterStore<Dev>& store, Norms<Dev> norms, LambOptions options)
      : options_(options),
        store_(store),
        masters_(dev, store),
        norms_(std::move(norms)),
        first_(store.make_buffer(dev)),
        second_(store.make_buffer(dev)) {}

  void step(Dev& dev, ConstView<Dev>, ConstView<Dev> state) override {
    // The gradients are not needed any more once a direction is known: it takes their place.
    const auto direction = store_.gradients();
    lamb_direction(dev, adam_update(options_), store_.trained(), state, direction, first_.mut(),
                   second_.mut(), masters_.view(), direction);
    const auto directions = norms_.squares(dev, store_, direction);
    const auto weights = norms_.weight_squares(dev, store_, masters_.view());
    Tensor<Dev> rates(dev, DType::f64, weights.shape());
    lamb_rates(dev, state, weights.view(), directions.view(), rates.mut());
    apply_direction(dev, store_.trained(), state, rates.view(), direction, masters_.view());
  }
  [[nodiscard]] std::string name() const override { return "lamb"; }
  std::vector<StateBuffer<Dev>> state() override {
    std::vector<StateBuffer<Dev>> state;
    masters_.add_state(state);
    state.push_back({"exp_avg", &first_});
    state.push_back({"exp_avg_sq", &second_});
    return state;
  }

  void values_changed(Dev& dev) override { masters_.refresh(dev); }

 private:
  LambOptions options_;
  ParameterStore<Dev>& store_;
  MasterWeights<Dev> masters_;
  Norms<Dev> norms_;
  Tensor<Dev> first_;
  Tensor<Dev> second_;
};

template <class Dev>
[[nodiscard]] std::unique_ptr<Optimizer<Dev>> make_optimizer(Dev& dev, ParameterStore<Dev>& store,
                                                             const Norms<Dev>& norms,
                                                             const LambOptions& options) {
  return std::make_unique<Lamb<Dev>>(dev, store, norms, options);
}

}  // namespace dhp
