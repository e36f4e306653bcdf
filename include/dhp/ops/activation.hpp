// Activations: ReLU, exact GELU x Phi(x) (Hendrycks & Gimpel 2016), tanh.
#pragma once

#include <dhp/tensor/view.hpp>

namespace dhp {

enum class Activation { relu, gelu, tanh };

/// Whether backward needs the output (relu, tanh) or the input (gelu).
[[nodiscard]] constexpr bool saves_output(Activation kind) { return kind != Activation::gelu; }

/// y = f(x); y may be x.
template <Device Dev>
void activation_forward(Dev& dev, Activation kind, In<Dev> x, Out<Dev> y) {
  check(x.count() == y.count() && x.dtype() == y.dtype(), "activation: ", x.shape(), " of ",
        x.dtype(), " does not fit ", y.shape(), " of ", y.dtype());
  activation_forward_on(dev, kind, x, y);
}

/// dx = dy f'(x), from the saved tensor; dx may be dy.
template <Device Dev>
void activation_backward(Dev& dev, Activation kind, In<Dev> saved, In<Dev> dy, Out<Dev> dx) {
  check(saved.count() == dy.count() && dx.count() == dy.count() && saved.dtype() == dy.dtype() &&
            dx.dtype() == dy.dtype(),
        "activation: the gradient ", dy.shape(), " of ", dy.dtype(), " does not fit ",
        saved.shape(), " of ", saved.dtype());
  activation_backward_on(dev, kind, saved, dy, dx);
}

}  // namespace dhp
