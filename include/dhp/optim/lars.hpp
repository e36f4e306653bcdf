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
        plan_(dev, store),
        norms_(std::move(norms)),
        momentum_(store.make_buffer(dev)) {}

  void step(Dev& dev, ConstView<Dev> gradients, ConstView<Dev> state) override {
    auto& store = plan_.store();
    const auto weights = norms_.squares(
        dev, store, [&](const ParameterState<Dev>& parameter) { return plan_.master(parameter); });
    Tensor<Dev> rates(dev, DType::f64, weights.shape());
    lars_rates(dev, {.trust = options_.trust, .weight_decay = options_.weight_decay}, state,
               weights.view(), gradients, rates.mut());
    for (const auto& parameter : store.parameters()) {
      if (parameter->spec.buffer) continue;
      sgd_update(dev,
                 {.momentum = options_.momentum,
                  .weight_decay = parameter->spec.decays ? options_.weight_decay : 0,
                  .rate_in_momentum = true},
                 state, plan_.rate(*parameter, state, rates.view()),
                 store.gradients(parameter->range),
                 ParameterStore<Dev>::part(momentum_, parameter->range), plan_.master(*parameter),
                 parameter->value.as({parameter->range.size()}));
    }
  }
  std::vector<StateBuffer<Dev>> state() override {
    std::vector<StateBuffer<Dev>> state;
    plan_.add_state(state);
    state.push_back({"momentum_buffer", &momentum_});
    return state;
  }

  void values_changed(Dev& dev) override { plan_.refresh_masters(dev); }

 private:
  LarsOptions options_;
  UpdatePlan<Dev> plan_;
  Norms<Dev> norms_;
  Tensor<Dev> momentum_;
};

}  // namespace dhp
