// LAMB against algorithm 2 of You et al. 2020, with phi the identity, on any device.
#pragma once

#include <dhp/optim/lamb.hpp>
#include <tests/optim/split.hpp>
#include <tests/optim/trained.hpp>

namespace tests {

template <class Dev>
struct LambCases {
  static void steps() {
    const LambOptions options{.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-3, .weight_decay = 0.2};
    for (const auto compute : all_computes)
      three_steps<Dev>(
          compute, "exp_avg", "exp_avg_sq",
          [&](Dev& dev, ParameterStore<Dev>& store, const Norms<Dev>& norms) {
            return detail::Lamb<Dev>(dev, store, norms, options);
          },
          [&](Reference& p, const std::vector<double>& gradient, const StepState& scalars) {
            const auto t = static_cast<double>(scalars.updates);
            std::vector<double> direction;
            for (std::size_t i = 0; i < p.w.size(); ++i) {
              const double g = gradient[i];
              p.m[i] = options.beta1 * p.m[i] + (1 - options.beta1) * g;
              p.v[i] = options.beta2 * p.v[i] + (1 - options.beta2) * g * g;
              const double mean = p.m[i] / (1 - std::pow(options.beta1, t));
              const double square = p.v[i] / (1 - std::pow(options.beta2, t));
              direction.push_back(mean / (std::sqrt(square) + options.epsilon) +
                                  (p.decays ? options.weight_decay * p.w[i] : 0));
            }
            const double weight = length_of(p.w);
            // A weight of zeros has no length to go by.
            const double trust = p.decays && weight > 0 ? weight / length_of(direction) : 1;
            for (std::size_t i = 0; i < p.w.size(); ++i)
              p.w[i] -= scalars.learning_rate * trust * direction[i];
          });
  }

  static void split() {
    check_split<Dev>([](Dev& dev, ParameterStore<Dev>& store, const Norms<Dev>& norms) {
      return detail::Lamb<Dev>(dev, store, norms, {.weight_decay = 0.2});
    });
  }
};

}  // namespace tests
