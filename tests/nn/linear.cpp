// A linear layer's gradients: with a schedule that puts weight gradients off, that of the bias comes with that of the
// weight.
#include <dhp/cpu.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

using namespace dhp;
using namespace tests;

namespace {

struct Gradients {
  std::vector<double> dx, weight, bias;
  friend bool operator==(const Gradients&, const Gradients&) = default;
};

/// Of two micro-batches; `early`: before what waits is done.
Gradients gradients(bool order_free, bool defer, bool early, bool with_bias = true) {
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  Linear<Cpu> layer(build, "l", {.in = 5, .out = 3, .bias = with_bias});
  ParameterList<Cpu> parameters;
  layer.parameters(parameters);
  ParameterStore<Cpu> store(dev, parameters,
                            {.compute = DType::f64, .order_free = order_free, .seed = 4});
  Gradients found;
  std::vector<Work<Cpu>> deferred;
  for (const std::uint32_t micro_batch : {0u, 1u}) {
    Tape<Cpu> tape({});
    if (defer) tape.defer_to(&deferred);
    static_cast<void>(
        layer.forward(dev, random_tensor<double>(dev, {2, 4, 5}, 1 + micro_batch), tape));
    found.dx =
        widened(layer.backward(dev, random_tensor<double>(dev, {2, 4, 3}, 3 + micro_batch), tape));
    CHECK(tape.empty());
  }
  CHECK(deferred.size() == (defer ? 2 : 0));
  if (!early)
    for (auto& work : deferred) work(dev);
  store.finalize_gradients(dev, {0, store.size()});
  found.weight = widened(clone(dev, ConstView<Cpu>(layer.weight()->gradient)));
  if (with_bias) found.bias = widened(clone(dev, ConstView<Cpu>(layer.bias()->gradient)));
  return found;
}

}  // namespace

TEST_CASE("linear: the gradient of the bias waits with that of the weight") {
  for (const bool order_free : {false, true}) {
    const auto now = gradients(order_free, false, true);
    const auto early = gradients(order_free, true, true);
    CHECK(early.dx == now.dx);
    CHECK(early.weight == std::vector<double>(15));
    CHECK(early.bias == std::vector<double>(3));
    CHECK(gradients(order_free, true, false) == now);
    CHECK(gradients(order_free, false, true, false).weight == now.weight);
  }
}

TEST_CASE("linear: the gradient of the input goes onto beta times what is there") {
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  Linear<Cpu> layer(build, "l", {.in = 5, .out = 3});
  ParameterList<Cpu> parameters;
  layer.parameters(parameters);
  ParameterStore<Cpu> store(dev, parameters, {.compute = DType::f64, .seed = 4});
  const auto back = [&](auto body) {
    store.zero_gradients(dev);
    Tape<Cpu> tape({});
    static_cast<void>(layer.forward(dev, random_tensor<double>(dev, {2, 4, 5}, 1), tape));
    auto dx = body(random_tensor<double>(dev, {2, 4, 3}, 2), tape);
    CHECK(tape.empty());
    return widened(dx);
  };
  const auto plain = back(
      [&](Tensor<Cpu> dy, Tape<Cpu>& tape) { return layer.backward(dev, std::move(dy), tape); });
  const auto weight = widened(clone(dev, ConstView<Cpu>(layer.weight()->gradient)));
  const auto bias = widened(clone(dev, ConstView<Cpu>(layer.bias()->gradient)));
  for (const double beta : {0.0, 1.0, 0.5}) {
    const auto onto = back([&](Tensor<Cpu> dy, Tape<Cpu>& tape) {
      auto dx = random_tensor<double>(dev, {2, 4, 5}, 3);
      layer.backward_onto(dev, std::move(dy), dx.mut(), beta, tape);
      return dx;
    });
    const auto there = widened(random_tensor<double>(dev, {2, 4, 5}, 3));
    for (std::size_t at = 0; at < onto.size(); ++at)
      CHECK(std::abs(onto[at] - (plain[at] + beta * there[at])) < 1e-12);
    CHECK(widened(clone(dev, ConstView<Cpu>(layer.weight()->gradient))) == weight);
    CHECK(widened(clone(dev, ConstView<Cpu>(layer.bias()->gradient))) == bias);
  }
}

TEST_CASE("linear: gradients of micro-batches add up, and are the sums that they should be") {
  Cpu dev;
  const auto found = gradients(false, false, false);
  for (std::size_t out = 0; out < 3; ++out) {
    double bias = 0;
    std::vector<double> weight(5);
    for (const std::uint32_t micro_batch : {0u, 1u}) {
      const auto x = widened(random_tensor<double>(dev, {8, 5}, 1 + micro_batch));
      const auto dy = widened(random_tensor<double>(dev, {8, 3}, 3 + micro_batch));
      for (std::size_t row = 0; row < 8; ++row) {
        bias += dy[row * 3 + out];
        for (std::size_t in = 0; in < 5; ++in) weight[in] += dy[row * 3 + out] * x[row * 5 + in];
      }
    }
    CHECK(std::abs(found.bias[out] - bias) < 1e-12);
    for (std::size_t in = 0; in < 5; ++in)
      CHECK(std::abs(found.weight[out * 5 + in] - weight[in]) < 1e-12);
  }
}
