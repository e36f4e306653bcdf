// AdamW (Loshchilov & Hutter 2019, "Decoupled weight decay regularization", algorithm 2).
#pragma once

#include <dhp/optim/optimizer.hpp>

namespace dhp {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
};

template <class Options>
[[nodiscard]] AdamUpdate adam_update(const Options& options) {
  return {.beta1 = options.beta1,
          .beta2 = options.beta2,
          .epsilon = options.epsilon,
          .weight_decay = options.weight_decay};
}

template <class Dev>
class AdamW final : public Optimizer<Dev> {
 public:
  AdamW(Dev& dev, ParameterStore<Dev>& store, AdamWOptions options)
      : options_(options),
        store_(store),
        masters_(dev, store),
        first_(store.make_buffer(dev)),
        second_(store.make_buffer(dev)) {}

  void step(Dev& dev, ConstView<Dev>, ConstView<Dev> state) override {
    adamw_update(dev, adam_update(options_), store_.trained(), state, store_.gradients(),
                 first_.mut(), second_.mut(), masters_.view());
  }
  [[nodiscard]] std::string name() const override { return "adamw"; }
  std::vector<StateBuffer<Dev>> state() override {
    std::vector<StateBuffer<Dev>> state;
    masters_.add_state(state);
    state.push_back({"exp_avg", &first_});
    state.push_back({"exp_avg_sq", &second_});
    return state;
  }

  void values_changed(Dev& dev) override { masters_.refresh(dev); }

 private:
  AdamWOptions options_;
  ParameterStore<Dev>& store_;
  MasterWeights<Dev> masters_;
  Tensor<Dev> first_;
  Tensor<Dev> second_;
};

template <class Dev>
[[nodiscard]] std::unique_ptr<Optimizer<Dev>> make_optimizer(Dev& dev, ParameterStore<Dev>& store,
                                                             const Norms<Dev>&,
                                                             const AdamWOptions& options) {
  return std::make_unique<AdamW<Dev>>(dev, store, options);
}

}  // namespace dhp
