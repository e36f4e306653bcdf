// LARS against algorithm 1 of You, Gitman, Ginsburg 2017, on any device.
#pragma once

#include <dhp/optim/lars.hpp>
#include <tests/optim/split.hpp>
#include <tests/optim/trained.hpp>

namespace tests {

template <class Dev>
struct LarsCases {
  static void steps() {
    for (const auto& options : {LarsOptions{.momentum = 0.8, .weight_decay = 0.2, .trust = 0.5},
                                {.momentum = 0, .weight_decay = 0, .trust = 0.5}})
      for (const auto compute : all_computes)
        three_steps<Dev>(
            compute, "momentum_buffer", "",
            [&](Dev& dev, ParameterStore<Dev>& store, const Norms<Dev>& norms) {
              return detail::Lars<Dev>(dev, store, norms, options);
            },
            [&](Reference& p, const std::vector<double>& gradient, const StepState& scalars) {
              const double decay = p.decays ? options.weight_decay : 0;
              const double weight = length_of(p.w);
              double local = 1;
              // A weight of zeros has no length to go by.
              if (p.decays && weight > 0)
                local = options.trust * weight / (length_of(gradient) + decay * weight);
              for (std::size_t i = 0; i < p.w.size(); ++i) {
                // The rate of a step stays with its gradient: it is inside the momentum.
                p.m[i] = options.momentum * p.m[i] +
                         scalars.learning_rate * local * (gradient[i] + decay * p.w[i]);
                p.w[i] -= p.m[i];
              }
            });
  }

  static void split() {
    check_split<Dev>([](Dev& dev, ParameterStore<Dev>& store, const Norms<Dev>& norms) {
      return detail::Lars<Dev>(dev, store, norms, {.weight_decay = 0.2, .trust = 0.5});
    });
  }
};

}  // namespace tests
