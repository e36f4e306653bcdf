#pragma once

#include <dhp/cuda/map.hpp>
#include <dhp/ops/activation.hpp>

#include <cmath>

namespace dhp::detail::cuda {

/// The functions that rules of elementwise operations call.
struct Mathematics {
  template <class A>
  struct Gaussian {
    A below, density;
  };
  /// Returns the normal distribution's cumulative probability and density. erfc keeps the precision of small tails.
  template <class A>
  static constexpr Gaussian<A> gaussian(A x) {
    return {A(0.5) * std::erfc(x * A(-0.70710678118654752440)),
            A(0.39894228040143267794) * std::exp(A(-0.5) * x * x)};
  }
  template <class A>
  static constexpr A sigmoid(A x) {
    return 1 / (1 + std::exp(-x));
  }
  static constexpr auto tanh(auto x) { return std::tanh(x); }
};

/// Computes a rule with these functions.
template <class F>
struct ByRule {
  F f;
  constexpr auto operator()(auto... x) const { return f(Mathematics(), x...); }
};

}  // namespace dhp::detail::cuda

namespace dhp::detail {

template <KernelDevice Dev, class Rule>
void map_on(Dev& dev, const Rule& rule, ConstView<Dev> first, ConstView<Dev> second,
            ConstView<Dev> third, View<Dev> y) {
  visit_floating(y.dtype(), [&]<class T>(TypeTag<T>) {
    const auto map = [&](const auto&... x) {
      cuda::map(dev, y.count(), cuda::Rounded<T, cuda::ByRule<Rule>>{{rule}}, y.template data<T>(),
                x.template data<T>()...);
    };
    if constexpr (std::is_invocable_v<Rule, cuda::Mathematics, float>) map(first);
    else if constexpr (std::is_invocable_v<Rule, cuda::Mathematics, float, float>)
      map(first, second);
    else map(first, second, third);
  });
}

}  // namespace dhp::detail
