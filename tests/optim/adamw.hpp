// AdamW against the definition of torch.optim.AdamW, on any device.
#pragma once

#include <dhp/optim/adamw.hpp>
#include <tests/optim/trained.hpp>

namespace tests {

template <class Dev>
struct AdamWCases {
  static void steps() {
    for (const auto& options :
         {AdamWOptions{}, {.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3, .weight_decay = 0.2}})
      for (const auto compute : all_computes)
        three_steps<Dev>(
            compute, "exp_avg", "exp_avg_sq",
            [&](Dev& dev, ParameterStore<Dev>& store, const Norms<Dev>&) {
              return AdamW<Dev>(dev, store, options);
            },
            [&](Reference& p, const std::vector<double>& gradient, const StepState& scalars) {
              const auto t = static_cast<double>(scalars.updates);
              for (std::size_t i = 0; i < p.w.size(); ++i) {
                const double g = gradient[i];
                if (p.decays) p.w[i] -= scalars.learning_rate * options.weight_decay * p.w[i];
                p.m[i] = options.beta1 * p.m[i] + (1 - options.beta1) * g;
                p.v[i] = options.beta2 * p.v[i] + (1 - options.beta2) * g * g;
                const double mean = p.m[i] / (1 - std::pow(options.beta1, t));
                const double square = p.v[i] / (1 - std::pow(options.beta2, t));
                p.w[i] -= scalars.learning_rate * mean / (std::sqrt(square) + options.epsilon);
              }
            });
  }
};

}  // namespace tests
