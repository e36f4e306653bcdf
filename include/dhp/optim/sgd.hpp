// SGD with momentum (Sutskever et al. 2013) by PyTorch's formula: m = mu m + g, w -= lr m (Nesterov: lr (g + mu m)).
#pragma once

#include <dhp/optim/optimizer.hpp>

namespace dhp {

struct SgdOptions {
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
};

template <class Dev>
class Sgd final : public BufferedOptimizer<Dev> {
 public:
  Sgd(Dev& dev, ParameterStore<Dev>& store, SgdOptions options)
      : BufferedOptimizer<Dev>(dev, store,
                               options.momentum == 0 ? Names{} : Names{"momentum_buffer"}),
        options_(options) {
    check(options.momentum >= 0 && options.weight_decay >= 0,
          "momentum and weight decay of SGD are 0 or more, got ", options.momentum, " and ",
          options.weight_decay);
    check(options.momentum > 0 || !options.nesterov,
          "Nesterov's form of SGD changes nothing without a momentum; set one above 0");
  }

  [[nodiscard]] std::string name() const override { return "sgd"; }
  [[nodiscard]] std::string settings() const override {
    return concat(options_.nesterov ? "Nesterov " : "", "momentum ", options_.momentum,
                  ", weight decay ", options_.weight_decay);
  }
  void apply(Dev& dev, ConstView<Dev> state) override {
    auto& store = this->store_;
    sgd_update(dev,
               {.momentum = options_.momentum,
                .weight_decay = options_.weight_decay,
                .nesterov = options_.nesterov},
               store.trained(), state, {}, store.gradients(), this->buffer(0), this->masters());
  }

 private:
  using Names = std::vector<const char*>;
  SgdOptions options_;
};

template <class Dev>
[[nodiscard]] std::unique_ptr<Optimizer<Dev>> make_optimizer(Dev& dev, ParameterStore<Dev>& store,
                                                             const Norms<Dev>&,
                                                             const SgdOptions& options) {
  return std::unique_ptr<Optimizer<Dev>>(new Sgd<Dev>(dev, store, options));
}

}  // namespace dhp
