#pragma once

#include <dhp/cuda/map.hpp>
#include <dhp/ops/activation.hpp>

#include <cmath>

namespace dhp::cuda {

template <class T>
struct Relu {
  using A = Accumulator<T>;
  constexpr T operator()(T x) const {
    const A value = static_cast<A>(x);
    return static_cast<T>(value < A(0) ? A(0) : value);  // NaN stays NaN
  }
};
template <class T>
struct ReluGradient {
  using A = Accumulator<T>;
  constexpr T operator()(T y, T dy) const {
    return static_cast<T>(static_cast<A>(y) > A(0) ? static_cast<A>(dy) : A(0));
  }
};

/// The normal distribution's cumulative probability, by erfc, which keeps the digits of small
/// tails.
template <class A>
[[nodiscard]] constexpr A normal_below(A x) {
  return A(0.5) * std::erfc(x * A(-0.70710678118654752440));
}
template <class A>
[[nodiscard]] constexpr A normal_density(A x) {
  return A(0.39894228040143267794) * std::exp(A(-0.5) * x * x);
}

template <class T>
struct Gelu {
  using A = Accumulator<T>;
  constexpr T operator()(T x) const {
    const A value = static_cast<A>(x);
    return static_cast<T>(value * normal_below(value));
  }
};
template <class T>
struct GeluGradient {
  using A = Accumulator<T>;
  constexpr T operator()(T x, T dy) const {
    const A value = static_cast<A>(x);
    return static_cast<T>(static_cast<A>(dy) *
                          (normal_below(value) + value * normal_density(value)));
  }
};

template <class T>
struct Tanh {
  using A = Accumulator<T>;
  constexpr T operator()(T x) const { return static_cast<T>(std::tanh(static_cast<A>(x))); }
};
template <class T>
struct TanhGradient {
  using A = Accumulator<T>;
  constexpr T operator()(T y, T dy) const {
    const A value = static_cast<A>(y);
    return static_cast<T>(static_cast<A>(dy) * (A(1) - value * value));
  }
};

}  // namespace dhp::cuda

namespace dhp {

template <KernelDevice Dev>
void activation_forward_on(Dev& dev, Activation kind, ConstView<Dev> x, View<Dev> y) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    const auto apply = [&](auto f) {
      cuda::map(dev, y.count(), f, y.template data<T>(), x.template data<T>());
    };
    switch (kind) {
      case Activation::relu: return apply(cuda::Relu<T>{});
      case Activation::gelu: return apply(cuda::Gelu<T>{});
      case Activation::tanh: return apply(cuda::Tanh<T>{});
    }
  });
}
template <KernelDevice Dev>
void activation_backward_on(Dev& dev, Activation kind, ConstView<Dev> saved, ConstView<Dev> dy,
                            View<Dev> dx) {
  visit_floating(dy.dtype(), [&]<class T>(Tag<T>) {
    const auto apply = [&](auto f) {
      cuda::map(dev, dx.count(), f, dx.template data<T>(), saved.template data<T>(),
                dy.template data<T>());
    };
    switch (kind) {
      case Activation::relu: return apply(cuda::ReluGradient<T>{});
      case Activation::gelu: return apply(cuda::GeluGradient<T>{});
      case Activation::tanh: return apply(cuda::TanhGradient<T>{});
    }
  });
}

}  // namespace dhp
