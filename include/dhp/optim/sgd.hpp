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
      : options_(options), store_(store), masters_(dev, store) {
    if (options.momentum != 0) momentum_ = store.make_buffer(dev);
  }

  void step(Dev& dev, ConstView<Dev>, ConstView<Dev> state) override {
    sgd_update(dev,
               {.momentum = options_.momentum,
                .weight_decay = options_.weight_decay,
                .nesterov = options_.nesterov},
               store_.trained(), state, {}, store_.gradients(),
               momentum_ ? momentum_.mut() : View<Dev>(), masters_.view());
  }
  [[nodiscard]] std::string name() const override { return "sgd"; }
  std::vector<StateBuffer<Dev>> state() override {
    std::vector<StateBuffer<Dev>> state;
    masters_.add_state(state);
    if (momentum_) state.push_back({"momentum_buffer", &momentum_});
    return state;
  }

  void values_changed(Dev& dev) override { masters_.refresh(dev); }

 private:
  SgdOptions options_;
  ParameterStore<Dev>& store_;
  MasterWeights<Dev> masters_;
  Tensor<Dev> momentum_;
};

template <class Dev>
[[nodiscard]] std::unique_ptr<Optimizer<Dev>> make_optimizer(Dev& dev, ParameterStore<Dev>& store,
                                                             const Norms<Dev>&,
                                                             const SgdOptions& options) {
  return std::make_unique<Sgd<Dev>>(dev, store, options);
}

}  // namespace dhp
