// LAMB (You et al. 2020, "Large batch optimization for deep learning: training BERT in 76 minutes",
// algorithm 2): Adam's direction, scaled for each weight by |w| / |direction|. Biases and norms use 1.
#pragma once

#include <dhp/optim/adamw.hpp>

namespace dhp {

template <class Dev>
class Lamb final : public Optimizer<Dev> {
 public:
  Lamb(Dev& dev, ParameterStore<Dev>& store, Norms<Dev> norms, AdamOptions options)
      : options_(options),
        plan_(dev, store),
        norms_(std::move(norms)),
        first_(store.make_buffer(dev)),
        second_(store.make_buffer(dev)) {}

  void step(Dev& dev, ConstView<Dev>, ConstView<Dev> state) override {
    auto& store = plan_.store();
    const auto part = [](Tensor<Dev>& buffer, Range range) {
      return ParameterStore<Dev>::part(buffer, range);
    };
    // The gradients are not needed any more once a direction is known: it takes their place.
    for (const auto& run : plan_.runs())
      lamb_direction(dev, adam_update(options_, run.decays), state, store.gradients(run.range),
                     part(first_, run.range), part(second_, run.range), plan_.master(run),
                     store.gradients(run.range));
    const auto directions = norms_.gradient_squares(dev, store);
    const auto weights = norms_.squares(
        dev, store, [&](const ParameterState<Dev>& parameter) { return plan_.master(parameter); });
    Tensor<Dev> rates(dev, DType::f64, weights.shape());
    lamb_rates(dev, state, weights.view(), directions.view(), rates.mut());
    for (const auto& parameter : store.parameters()) {
      if (parameter->spec.buffer) continue;
      apply_direction(dev, state, plan_.rate(*parameter, state, rates.view()),
                      store.gradients(parameter->range), plan_.master(*parameter),
                      parameter->value.as({parameter->range.size()}));
    }
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
  Norms<Dev> norms_;
  Tensor<Dev> first_;
  Tensor<Dev> second_;
};

}  // namespace dhp
