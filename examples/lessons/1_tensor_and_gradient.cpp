// Lesson 1: a tensor and its gradient. Ops work on views; a backward op is the derivative of its forward
// op. Here: loss = sum of gelu(x W), and its gradient with respect to W, checked by moving one weight.
#include <dhp/default_device.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

using Dev = dhp::DefaultDevice;
using dhp::Tensor;

int main() {
  Dev dev;
  const auto x = Tensor<Dev>::from_host(dev, {2, 3}, std::vector<double>{1, -2, 0.5, 3, 0, -1});
  std::vector<double> weights{0.1, -0.2, 0.3, 0.4, -0.5, 0.6};  // W [3, 2]

  // Forward: h = x W, y = gelu(h), loss = sum of y.
  const auto loss_of = [&](const std::vector<double>& values) {
    const auto w = Tensor<Dev>::from_host(dev, {3, 2}, values);
    Tensor<Dev> h(dev, dhp::DType::f64, {2, 2});
    gemm(dev, x.view(), w.view(), h.mut());
    activation_forward(dev, dhp::Activation::gelu, h.view(), h.mut());
    Tensor<Dev> loss(dev, dhp::DType::f64, {1});
    sum(dev, h.view(), loss.mut());
    return loss.to_host<double>(dev)[0];
  };

  // Backward, in the reverse order: dy = 1, dh = gelu'(h) dy, dW = x^T dh.
  const auto w = Tensor<Dev>::from_host(dev, {3, 2}, weights);
  Tensor<Dev> h(dev, dhp::DType::f64, {2, 2});
  gemm(dev, x.view(), w.view(), h.mut());
  Tensor<Dev> dh(dev, dhp::DType::f64, {2, 2});
  fill(dev, dh.mut(), 1);
  activation_backward(dev, dhp::Activation::gelu, h.view(), dh.view(), dh.mut());
  Tensor<Dev> dw(dev, dhp::DType::f64, {3, 2});
  gemm(dev, x.view(), dh.view(), dw.mut(), {.transpose_a = true});

  std::printf("loss %.6f\n", loss_of(weights));
  bool right = true;
  const auto gradient = dw.to_host<double>(dev);
  for (std::size_t at = 0; at < weights.size(); ++at) {
    auto up = weights;
    auto down = weights;
    up[at] += 1e-5;
    down[at] -= 1e-5;
    const double moved = (loss_of(up) - loss_of(down)) / 2e-5;
    std::printf("dW[%zu] = % .6f, by moving the weight % .6f\n", at, gradient[at], moved);
    right = right && std::abs(gradient[at] - moved) < 1e-8;
  }
  return right ? 0 : 1;
}
