// LARS (You, Gitman, Ginsburg 2017, "Large batch training of convolutional networks", algorithm 1): the
// rate is scaled for each weight by trust * |w| / (|g| + decay * |w|); m = mu m + rate (g + decay w), w -= m.
// Biases and norms are not scaled and do not decay.
#pragma once

#include <dhp/optim/optimizer.hpp>

#include <cmath>

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

  void step(Dev& dev, const SquaredNorms& gradients, const StepScalars& scalars) override {
    auto& store = plan_.store();
    const auto weights = norms_.squares(
        dev, store, [&](const ParameterState<Dev>& parameter) { return plan_.master(parameter); });
    for (const auto& parameter : store.parameters()) {
      if (parameter->spec.buffer) continue;
      const auto at = static_cast<std::size_t>(parameter->index);
      const double decay = parameter->spec.decays ? options_.weight_decay : 0;
      const double rate = scalars.learning_rate *
                          (parameter->spec.decays
                               ? trust_ratio(std::sqrt(weights.of[at]),
                                             std::sqrt(gradients.of[at]) * scalars.gradient_scale)
                               : 1);
      // The rate of a step stays with its gradient, in the momentum, since it changes from step to step.
      sgd_update(dev,
                 {.lr = 1,
                  .momentum = options_.momentum,
                  .weight_decay = rate * decay,
                  .gradient_scale = rate * scalars.gradient_scale},
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
  [[nodiscard]] double trust_ratio(double weight, double gradient) const {
    const double denominator = gradient + options_.weight_decay * weight;
    return weight > 0 && denominator > 0 ? options_.trust * weight / denominator : 1;
  }

  LarsOptions options_;
  UpdatePlan<Dev> plan_;
  Norms<Dev> norms_;
  Tensor<Dev> momentum_;
};

}  // namespace dhp
