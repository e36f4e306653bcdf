// Activations: ReLU, exact GELU x Phi(x) and its tanh form (Hendrycks & Gimpel 2016), tanh, and SwiGLU (Shazeer 2020,
// section 2).
#pragma once

#include <dhp/ops/checks.hpp>

#include <type_traits>

namespace dhp {

enum class Activation { relu, gelu, gelu_tanh, tanh };

namespace detail {
/// GELU's tanh form, x (1 + tanh(v / 2)) / 2, computed as x sigmoid(v): 1 + tanh cancels if v < 0.
template <class A>
struct GeluTanhTerm {
  /// The type of constants. A may be a vector of floats.
  using Constant = std::conditional_t<std::is_same_v<A, double>, double, float>;
  A v, slope;  // v = sqrt(8 / pi) (x + 0.044715 x^3), and dv/dx
  explicit constexpr GeluTanhTerm(A x)
      : v(Constant(1.5957691216057307117) * (x + Constant(0.044715) * x * x * x)),
        slope(Constant(1.5957691216057307117) * (Constant(1) + Constant(0.134145) * x * x)) {}
  /// Returns the derivative of the activation. below and above: the sigmoids of v and of -v.
  [[nodiscard]] constexpr A gradient(A x, A below, A above) const {
    return below + x * below * above * slope;
  }
};

/// Rules of elementwise operations, for scalars and vectors of floats. A rule takes the functions of the device and an
/// element of each of its inputs. A gradient takes what the activation saves, its input x or output y, and dy.
struct Relu {
  template <class V>
  constexpr V operator()(auto, V x) const {
    return x < V{} ? V{} : x;  // NaN stays NaN
  }
};
struct ReluGradient {
  template <class V>
  constexpr V operator()(auto, V y, V dy) const {
    return y > V{} ? dy : V{};
  }
};
struct Gelu {
  constexpr auto operator()(auto math, auto x) const { return x * math.gaussian(x).below; }
};
struct GeluGradient {
  constexpr auto operator()(auto math, auto x, auto dy) const {
    const auto normal = math.gaussian(x);
    return dy * (normal.below + x * normal.density);
  }
};
struct GeluTanh {
  constexpr auto operator()(auto math, auto x) const { return x * math.sigmoid(GeluTanhTerm(x).v); }
};
struct GeluTanhGradient {
  constexpr auto operator()(auto math, auto x, auto dy) const {
    const GeluTanhTerm term(x);
    return dy * term.gradient(x, math.sigmoid(term.v), math.sigmoid(-term.v));
  }
};
struct Tanh {
  constexpr auto operator()(auto math, auto x) const { return math.tanh(x); }
};
struct TanhGradient {
  constexpr auto operator()(auto, auto y, auto dy) const { return dy * (1.0f - y * y); }
};
struct Swiglu {
  constexpr auto operator()(auto math, auto gate, auto up) const {
    return gate * math.sigmoid(gate) * up;
  }
};
struct SwigluGateGradient {
  constexpr auto operator()(auto math, auto dy, auto gate, auto up) const {
    const auto s = math.sigmoid(gate);
    return dy * up * s * (1.0f + gate * (1.0f - s));
  }
};

/// Returns whether the gradient needs the output of the activation, not its input.
[[nodiscard]] constexpr bool saves_output(Activation kind) {
  return kind == Activation::relu || kind == Activation::tanh;
}

/// y = gate sigmoid(gate) up. gate, up and y [..] have the same number of elements; y may be gate or up.
template <Device Dev>
void swiglu_forward(Dev& dev, InView<Dev> gate, InView<Dev> up, OutView<Dev> y) {
  check_like("swiglu: up", up, gate);
  check_like("swiglu: y", y, gate);
  map_on(dev, Swiglu(), gate, up, InView<Dev>(), y);
}

/// Computes the gradients of gate and up. dy, gate, up, dgate and dup [..] have equally many elements. dgate may be up,
/// dup may be dy.
template <Device Dev>
void swiglu_backward(Dev& dev, InView<Dev> dy, InView<Dev> gate, InView<Dev> up, OutView<Dev> dgate,
                     OutView<Dev> dup) {
  check_like("swiglu: dy", dy, gate);
  check_like("swiglu: up", up, gate);
  check_like("swiglu: dgate", dgate, gate);
  check_like("swiglu: dup", dup, gate);
  map_on(dev, SwigluGateGradient(), dy, gate, up, dgate);
  map_on(dev, Swiglu(), gate, dy, InView<Dev>(), dup);
}
}  // namespace detail

/// y = f(x). x and y [..] have the same number of elements; y may be x.
template <Device Dev>
void activation_forward(Dev& dev, Activation kind, InView<Dev> x, OutView<Dev> y) {
  detail::check_like("activation: y", y, x);
  const auto apply = [&](auto rule) { map_on(dev, rule, x, InView<Dev>(), InView<Dev>(), y); };
  switch (kind) {
    case Activation::relu: return apply(detail::Relu());
    case Activation::gelu: return apply(detail::Gelu());
    case Activation::gelu_tanh: return apply(detail::GeluTanh());
    case Activation::tanh: return apply(detail::Tanh());
  }
}

/// dx = dy f'(x), from the saved x or y. saved, dy and dx [..] have the same number of elements; dx may be dy.
template <Device Dev>
void activation_backward(Dev& dev, Activation kind, InView<Dev> saved, InView<Dev> dy,
                         OutView<Dev> dx) {
  detail::check_like("activation: dy", dy, saved);
  detail::check_like("activation: dx", dx, saved);
  const auto apply = [&](auto rule) { map_on(dev, rule, saved, dy, InView<Dev>(), dx); };
  switch (kind) {
    case Activation::relu: return apply(detail::ReluGradient());
    case Activation::gelu: return apply(detail::GeluGradient());
    case Activation::gelu_tanh: return apply(detail::GeluTanhGradient());
    case Activation::tanh: return apply(detail::TanhGradient());
  }
}

}  // namespace dhp
