// Softmax over the last dim.
#pragma once

#include <dhp/tensor/view.hpp>

namespace dhp {

/// y = exp(x - max) / sum of exp(x - max), by row; y may be x.
template <Device Dev>
void softmax_forward(Dev& dev, In<Dev> x, Out<Dev> y) {
  check(x.count() == y.count() && x.dtype() == y.dtype(), "softmax: ", x.shape(), " of ", x.dtype(),
        " does not fit ", y.shape(), " of ", y.dtype());
  softmax_forward_on(dev, x, y);
}

/// dx = y * (dy - sum of y dy), by row; dx may be dy.
template <Device Dev>
void softmax_backward(Dev& dev, In<Dev> y, In<Dev> dy, Out<Dev> dx) {
  check(dy.count() == y.count() && dy.dtype() == y.dtype(), "softmax: the gradient ", dy.shape(),
        " of ", dy.dtype(), " does not fit ", y.shape(), " of ", y.dtype());
  check(dx.count() == y.count() && dx.dtype() == y.dtype(), "softmax: the gradient ", dx.shape(),
        " of ", dx.dtype(), " does not fit ", y.shape(), " of ", y.dtype());
  softmax_backward_on(dev, y, dy, dx);
}

}  // namespace dhp
