#pragma once

#include <dhp/cuda/map.hpp>
#include <dhp/ops/activation.hpp>

#include <cmath>

namespace dhp::detail::cuda {

struct Relu {
  constexpr auto operator()(auto x) const { return x < 0 ? decltype(x)(0) : x; }  // keeps a NaN
};
struct ReluGradient {
  constexpr auto operator()(auto y, auto dy) const { return y > 0 ? dy : decltype(dy)(0); }
};

/// Returns the normal distribution's cumulative probability. erfc keeps the precision of small tails.
template <class A>
[[nodiscard]] constexpr A normal_below(A x) {
  return A(0.5) * std::erfc(x * A(-0.70710678118654752440));
}
template <class A>
[[nodiscard]] constexpr A normal_density(A x) {
  return A(0.39894228040143267794) * std::exp(A(-0.5) * x * x);
}

struct Gelu {
  constexpr auto operator()(auto x) const { return x * normal_below(x); }
};
struct GeluGradient {
  constexpr auto operator()(auto x, auto dy) const {
    return dy * (normal_below(x) + x * normal_density(x));
  }
};
template <class A>
[[nodiscard]] constexpr A sigmoid(A x) {
  return 1 / (1 + std::exp(-x));
}
struct GeluTanh {
  constexpr auto operator()(auto x) const { return x * sigmoid(GeluTanhTerm<decltype(x)>(x).v); }
};
struct GeluTanhGradient {
  constexpr auto operator()(auto x, auto dy) const {
    const GeluTanhTerm<decltype(x)> term(x);
    return dy * term.gradient(x, sigmoid(term.v), sigmoid(-term.v));
  }
};
struct Tanh {
  constexpr auto operator()(auto x) const { return std::tanh(x); }
};
struct TanhGradient {
  constexpr auto operator()(auto y, auto dy) const { return dy * (1 - y * y); }
};

struct Swiglu {
  constexpr auto operator()(auto gate, auto up) const { return gate * sigmoid(gate) * up; }
};
struct SwigluGateGradient {
  constexpr auto operator()(auto dy, auto gate, auto up) const {
    const auto s = sigmoid(gate);
    return dy * up * s * (1 + gate * (1 - s));
  }
};

}  // namespace dhp::detail::cuda

namespace dhp::detail {

template <KernelDevice Dev>
void activation_forward_on(Dev& dev, Activation kind, ConstView<Dev> x, View<Dev> y) {
  visit_floating(x.dtype(), [&]<class T>(TypeTag<T>) {
    const auto apply = [&]<class F>(F f) {
      cuda::map(dev, y.count(), cuda::Rounded<T, F>{f}, y.template data<T>(), x.template data<T>());
    };
    switch (kind) {
      case Activation::relu: return apply(cuda::Relu{});
      case Activation::gelu: return apply(cuda::Gelu{});
      case Activation::gelu_tanh: return apply(cuda::GeluTanh{});
      case Activation::tanh: return apply(cuda::Tanh{});
    }
  });
}
template <KernelDevice Dev>
void activation_backward_on(Dev& dev, Activation kind, ConstView<Dev> saved, ConstView<Dev> dy,
                            View<Dev> dx) {
  visit_floating(dy.dtype(), [&]<class T>(TypeTag<T>) {
    const auto apply = [&]<class F>(F f) {
      cuda::map(dev, dx.count(), cuda::Rounded<T, F>{f}, dx.template data<T>(),
                saved.template data<T>(), dy.template data<T>());
    };
    switch (kind) {
      case Activation::relu: return apply(cuda::ReluGradient{});
      case Activation::gelu: return apply(cuda::GeluGradient{});
      case Activation::gelu_tanh: return apply(cuda::GeluTanhGradient{});
      case Activation::tanh: return apply(cuda::TanhGradient{});
    }
  });
}
template <KernelDevice Dev>
void swiglu_forward_on(Dev& dev, ConstView<Dev> gate, ConstView<Dev> up, View<Dev> y) {
  visit_floating(y.dtype(), [&]<class T>(TypeTag<T>) {
    cuda::map(dev, y.count(), cuda::Rounded<T, cuda::Swiglu>{}, y.template data<T>(),
              gate.template data<T>(), up.template data<T>());
  });
}
template <KernelDevice Dev>
void swiglu_backward_on(Dev& dev, ConstView<Dev> dy, ConstView<Dev> gate, ConstView<Dev> up,
                        View<Dev> dgate, View<Dev> dup) {
  visit_floating(dy.dtype(), [&]<class T>(TypeTag<T>) {
    const T *const from = dy.data(), *const gates = gate.template data<T>();
    cuda::map(dev, dy.count(), cuda::Rounded<T, cuda::SwigluGateGradient>{},
              dgate.template data<T>(), from, gates, up.template data<T>());
    cuda::map(dev, dy.count(), cuda::Rounded<T, cuda::Swiglu>{}, dup.template data<T>(), gates,
              from);
  });
}

}  // namespace dhp::detail
