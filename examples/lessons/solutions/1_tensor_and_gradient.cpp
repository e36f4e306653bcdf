// Solutions of lesson 1. 1: the gradient with respect to x. 2: another loss, the sum of squares.
#include "lesson.hpp"

#include <functional>

using dhp::Activation, dhp::DType, dhp::Tensor;
using toy::Dev;
constexpr std::int64_t samples = 2, inputs = 3, outputs = 2;
using Numbers = std::vector<double>;

/// Computes h = x W and y = gelu(h), as in lesson 1.
struct Forward {
  Forward(Dev& dev, const Numbers& x_values, const Numbers& w_values)
      : x(Tensor<Dev>::from_host(dev, {samples, inputs}, x_values)),
        w(Tensor<Dev>::from_host(dev, {inputs, outputs}, w_values)),
        h(dev, DType::f64, {samples, outputs}),
        y(dev, DType::f64, {samples, outputs}) {
    gemm(dev, x.view(), w.view(), h.mut());
    activation_forward(dev, Activation::gelu, h.view(), y.mut());
  }
  /// Returns the loss of the first or of the second exercise.
  double loss(Dev& dev, bool of_squares) const {
    Tensor<Dev> total(dev, DType::f64, {1});
    if (of_squares) sum_of_squares(dev, y.view(), total.mut());
    else sum(dev, y.view(), total.mut());
    return total.to_host<double>(dev)[0];
  }
  /// Turns dy into dh = gelu'(h) dy.
  void backward(Dev& dev, Tensor<Dev>& dy) const {
    activation_backward(dev, Activation::gelu, h.view(), dy.view(), dy.mut());
  }
  Tensor<Dev> x, w, h, y;
};

/// Prints a gradient next to the finite difference of each number; returns the largest difference between them.
double compare(const char* name, const Numbers& gradient, const Numbers& values,
               const std::function<double(const Numbers&)>& loss_of) {
  double worst = 0;
  for (std::size_t at = 0; at < values.size(); ++at) {
    auto up = values, down = values;
    up[at] += 1e-5;
    down[at] -= 1e-5;
    const double moved = (loss_of(up) - loss_of(down)) / 2e-5;
    std::printf("%s[%zu] = % .6f, by moving the number % .6f\n", name, at, gradient[at], moved);
    worst = std::max(worst, std::abs(gradient[at] - moved));
  }
  return worst;
}

int main() {
  Dev dev;
  const Numbers x{1, -2, 0.5, 3, 0, -1}, w{0.1, -0.2, 0.3, 0.4, -0.5, 0.6};
  const Forward now(dev, x, w);

  // 1: h = x W, so dx = dh W^T. dx [2, 3] has the shape of x, as dW has the shape of W.
  Tensor<Dev> dh(dev, DType::f64, {samples, outputs}), dx(dev, DType::f64, {samples, inputs});
  fill(dev, dh.mut(), 1);
  now.backward(dev, dh);
  gemm(dev, dh.view(), now.w.view(), dx.mut(), {.transpose_b = true});
  const double of_x = compare("dx", dx.to_host<double>(dev), x, [&](const Numbers& moved) {
    return Forward(dev, moved, w).loss(dev, false);
  });

  // 2: for the sum of y^2, dy = 2 y. Only the first line of the backward pass changes.
  Tensor<Dev> dw(dev, DType::f64, {inputs, outputs});
  auto dy = clone(dev, now.y.view());
  scale(dev, 2, dy.mut());
  now.backward(dev, dy);
  gemm(dev, now.x.view(), dy.view(), dw.mut(), {.transpose_a = true});
  const double of_squares = compare("dW", dw.to_host<double>(dev), w, [&](const Numbers& moved) {
    return Forward(dev, x, moved).loss(dev, true);
  });
  return toy::status(of_x < 1e-8 && of_squares < 1e-8);
}
