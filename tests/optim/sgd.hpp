// SGD against PyTorch's definition of torch.optim.SGD (dampening 0), on any device.
#pragma once

#include <dhp/optim/sgd.hpp>
#include <tests/optim/trained.hpp>

namespace tests {

template <class Dev>
struct SgdCases {
  static void steps() {
    for (const auto& options : {SgdOptions{},
                                {.weight_decay = 0.1},
                                {.momentum = 0.9},
                                {.momentum = 0.8, .weight_decay = 0.1},
                                {.momentum = 0.8, .nesterov = true, .weight_decay = 0.1}})
      for (const auto compute : all_computes) {
        INFO("options.momentum ", options.momentum, " options.nesterov ", options.nesterov);
        CAPTURE(options.weight_decay);
        const bool momentum = options.momentum != 0;
        three_steps<Dev>(
            compute, momentum ? "momentum_buffer" : "", "",
            [&](Dev& dev, ParameterStore<Dev>& store, const Norms<Dev>&) {
              return Sgd<Dev>(dev, store, options);
            },
            [&](Reference& p, const std::vector<double>& gradient, const StepState& scalars) {
              for (std::size_t i = 0; i < p.w.size(); ++i) {
                double g = gradient[i];
                if (p.decays) g += options.weight_decay * p.w[i];
                if (momentum) {
                  p.m[i] = options.momentum * p.m[i] + g;
                  g = options.nesterov ? g + options.momentum * p.m[i] : p.m[i];
                }
                p.w[i] -= scalars.learning_rate * g;
              }
            });
      }
  }
};

}  // namespace tests
