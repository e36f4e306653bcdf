// Activations: ReLU, exact GELU x Phi(x) and its tanh form (Hendrycks & Gimpel 2016), tanh, and SwiGLU (Shazeer 2020,
// section 2).
#pragma once

#include <dhp/ops/checks.hpp>

namespace dhp {

enum class Activation { relu, gelu, gelu_tanh, tanh };

namespace detail {
/// Whether the backward pass needs the output (relu, tanh) instead of the input (gelu).
[[nodiscard]] constexpr bool saves_output(Activation kind) {
  return kind == Activation::relu || kind == Activation::tanh;
}

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
/// y = gate sigmoid(gate) up. gate, up and y [..] have the same number of elements; y may be gate or up.
template <Device Dev>
void swiglu_forward(Dev& dev, InView<Dev> gate, InView<Dev> up, OutView<Dev> y) {
  check_like("swiglu: up", up, gate);
  check_like("swiglu: y", y, gate);
  swiglu_forward_on(dev, gate, up, y);
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
  swiglu_backward_on(dev, dy, gate, up, dgate, dup);
}
}  // namespace detail

/// y = f(x). x and y [..] have the same number of elements; y may be x.
template <Device Dev>
void activation_forward(Dev& dev, Activation kind, InView<Dev> x, OutView<Dev> y) {
  detail::check_like("activation: y", y, x);
  activation_forward_on(dev, kind, x, y);
}

/// dx = dy f'(x), from the saved x or y. saved, dy and dx [..] have the same number of elements; dx may be dy.
template <Device Dev>
void activation_backward(Dev& dev, Activation kind, InView<Dev> saved, InView<Dev> dy,
                         OutView<Dev> dx) {
  detail::check_like("activation: dy", dy, saved);
  detail::check_like("activation: dx", dx, saved);
  activation_backward_on(dev, kind, saved, dy, dx);
}

}  // namespace dhp
