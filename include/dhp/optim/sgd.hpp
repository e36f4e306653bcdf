// SGD with momentum (Sutskever et al. 2013), PyTorch's formula: m = mu m + g, w -= lr m (or g + mu m).
#pragma once

#include <dhp/optim/optimizer.hpp>

namespace dhp {

struct SgdOptions {
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
};

template <class Dev>
class Sgd final : public Optimizer<Dev> {
 public:
  Sgd(Dev& dev, ParameterStore<Dev>& store, SgdOptions options)
      : options_(options), plan_(dev, store) {
    if (options.momentum != 0) momentum_ = store.make_buffer(dev);
  }

  void step(Dev& dev, ConstView<Dev>, ConstView<Dev> state) override {
    for (const auto& run : plan_.runs())
      sgd_update(dev,
                 {.momentum = options_.momentum,
                  .weight_decay = run.decays ? options_.weight_decay : 0,
                  .nesterov = options_.nesterov},
                 state, learning_rate_of(state), plan_.store().gradients(run.range),
                 momentum_ ? ParameterStore<Dev>::part(momentum_, run.range) : View<Dev>(),
                 plan_.master(run), run.value);
  }
  std::vector<StateBuffer<Dev>> state() override {
    std::vector<StateBuffer<Dev>> state;
    plan_.add_state(state);
    if (momentum_) state.push_back({"momentum_buffer", &momentum_});
    return state;
  }

  void values_changed(Dev& dev) override { plan_.refresh_masters(dev); }

 private:
  SgdOptions options_;
  UpdatePlan<Dev> plan_;
  Tensor<Dev> momentum_;
};

}  // namespace dhp
