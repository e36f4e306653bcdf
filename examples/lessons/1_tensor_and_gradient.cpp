// Lesson 1: a tensor and its gradient. Ops work on views; a backward op is the derivative of its forward
// op. Here: loss = sum of gelu(x W), and its gradient with respect to W, checked by moving one weight.
#include "lesson.hpp"

using dhp::Activation, dhp::DType, dhp::Tensor;
using toy::Dev;
constexpr std::int64_t samples = 2, inputs = 3, outputs = 2;

int main() {
  Dev dev;
  const auto x = Tensor<Dev>::from_host(dev, {samples, inputs},  // one sample in each row
                                        std::vector<double>{1, -2, 0.5, 3, 0, -1});
  std::vector<double> weights{0.1, -0.2, 0.3, 0.4, -0.5, 0.6};

  // Forward: h = x W, y = gelu(h), loss = sum of y.
  const auto loss_of = [&](const std::vector<double>& values) {
    const auto w = Tensor<Dev>::from_host(dev, {inputs, outputs}, values);
    Tensor<Dev> h(dev, DType::f64, {samples, outputs}), y(dev, DType::f64, {samples, outputs});
    gemm(dev, x.view(), w.view(), h.mut());
    activation_forward(dev, Activation::gelu, h.view(), y.mut());
    Tensor<Dev> loss(dev, DType::f64, {1});
    sum(dev, y.view(), loss.mut());
    return loss.to_host<double>(dev)[0];
  };

  // Backward, in reverse order: dy = 1, dh = gelu'(h) dy, dW = x^T dh.
  const auto w = Tensor<Dev>::from_host(dev, {inputs, outputs}, weights);
  Tensor<Dev> h(dev, DType::f64, {samples, outputs}), dy(dev, DType::f64, {samples, outputs});
  Tensor<Dev> dh(dev, DType::f64, {samples, outputs}), dw(dev, DType::f64, {inputs, outputs});
  gemm(dev, x.view(), w.view(), h.mut());
  fill(dev, dy.mut(), 1);
  activation_backward(dev, Activation::gelu, h.view(), dy.view(), dh.mut());
  gemm(dev, x.view(), dh.view(), dw.mut(), {.transpose_a = true});

  std::printf("loss %.6f\n", loss_of(weights));
  bool correct = true;
  const auto gradient = dw.to_host<double>(dev);
  for (std::size_t at = 0; at < weights.size(); ++at) {
    auto up = weights, down = weights;
    up[at] += 1e-5;
    down[at] -= 1e-5;
    const double moved = (loss_of(up) - loss_of(down)) / 2e-5;
    std::printf("dW[%zu] = % .6f, by moving the weight % .6f\n", at, gradient[at], moved);
    correct = correct && std::abs(gradient[at] - moved) < 1e-8;
  }
  std::printf("\n");

  toy::Ledger ledger("bytes held (fp64, 8 bytes for a number)");
  ledger.line("weights W", w.size_bytes(), 8 * inputs * outputs);
  ledger.line("their gradient dW: as many", dw.size_bytes(), 8 * inputs * outputs);
  ledger.line("x and h, kept for backward: grow with the samples", x.size_bytes() + h.size_bytes(),
              8 * samples * (inputs + outputs));
  return toy::status(correct && ledger.agrees());
}
