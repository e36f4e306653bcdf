// AdamW (Loshchilov & Hutter 2019, "Decoupled weight decay regularization", algorithm 2).
#pragma once

#include <dhp/optim/optimizer.hpp>

namespace dhp {

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
};

[[nodiscard]] inline AdamUpdate adam_update(const AdamOptions& options, bool decays) {
  return {.beta1 = options.beta1,
          .beta2 = options.beta2,
          .epsilon = options.epsilon,
          .weight_decay = decays ? options.weight_decay : 0};
}

template <class Dev>
class AdamW final : public Optimizer<Dev> {
 public:
  AdamW(Dev& dev, ParameterStore<Dev>& store, AdamOptions options)
      : options_(options),
        plan_(dev, store),
        first_(store.make_buffer(dev)),
        second_(store.make_buffer(dev)) {}

  void step(Dev& dev, ConstView<Dev>, ConstView<Dev> state) override {
    for (const auto& run : plan_.runs())
      adamw_update(dev, adam_update(options_, run.decays), state,
                   plan_.store().gradients(run.range), ParameterStore<Dev>::part(first_, run.range),
                   ParameterStore<Dev>::part(second_, run.range), plan_.master(run), run.value);
  }
  std::vector<StateBuffer<Dev>> state() override {
    std::vector<StateBuffer<Dev>> state;
    plan_.add_state(state);
    state.push_back({"exp_avg", &first_});
    state.push_back({"exp_avg_sq", &second_});
    return state;
  }

  void values_changed(Dev& dev) override { plan_.refresh_masters(dev); }

 private:
  AdamOptions options_;
  UpdatePlan<Dev> plan_;
  Tensor<Dev> first_;
  Tensor<Dev> second_;
};

}  // namespace dhp
