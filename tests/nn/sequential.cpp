// Containers: order, shapes and costs; and that a residual block leaves alone what others hold.
#include <dhp/cpu.hpp>
#include <dhp/nn/activation.hpp>
#include <dhp/nn/linear.hpp>
#include <dhp/nn/sequential.hpp>
#include <tests/support/gradients.hpp>
#include <tests/support/residual.hpp>

#include <doctest/doctest.h>

using namespace tests;

namespace {

/// x -> factor * x + shift, in place where nobody else holds x; backward notes its name.
struct Affine : ElementwiseLayer<Cpu> {
  double factor;
  double shift;
  std::string* trace;
  Affine(double by, double plus, std::string* notes) : factor(by), shift(plus), trace(notes) {}
  Tensor<Cpu> forward(Cpu& dev, Tensor<Cpu> x, Tape<Cpu>&) {
    *trace += "f" + std::to_string(static_cast<int>(factor));
    auto y = x.unique() ? std::move(x) : clone(dev, x.view());
    scale(dev, factor, y.mut());
    Tensor<Cpu> ones(dev, y.dtype(), y.shape());
    fill(dev, ones.mut(), 1);
    axpy(dev, shift, ones.view(), y.mut());
    return y;
  }
  Tensor<Cpu> backward(Cpu& dev, Tensor<Cpu> dy, Tape<Cpu>&) {
    *trace += "b" + std::to_string(static_cast<int>(factor));
    auto dx = dy.unique() ? std::move(dy) : clone(dev, dy.view());
    scale(dev, factor, dx.mut());
    return dx;
  }
};

Tensor<Cpu> row(Cpu& dev, const std::vector<double>& values) {
  return Tensor<Cpu>::from_host(dev, {1, static_cast<std::int64_t>(values.size())}, values);
}

std::vector<std::string> names_of(const ParameterList<Cpu>& list) {
  std::vector<std::string> names;
  for (const auto& parameter : list) names.push_back(parameter->spec.name);
  return names;
}

}  // namespace

TEST_CASE("sequential: forward in order, backward in reverse; an empty one is the identity") {
  Cpu dev;
  std::string trace;
  Sequential<Cpu> layers;
  CHECK(layers.empty());
  Tape<Cpu> tape({});
  CHECK(widened(layers.forward(dev, row(dev, {1, 2}), tape)) == std::vector<double>{1, 2});
  CHECK(widened(layers.backward(dev, row(dev, {1, 2}), tape)) == std::vector<double>{1, 2});
  layers.add("a", Affine(2, 1, &trace))
      .add("b", Affine(3, 0, &trace))
      .add("c", Affine(5, 0, &trace));
  CHECK(!layers.empty());
  CHECK(widened(layers.forward(dev, row(dev, {1, 2}), tape)) == std::vector<double>{45, 75});
  CHECK(widened(layers.backward(dev, row(dev, {1, 2}), tape)) == std::vector<double>{30, 60});
  CHECK(trace == "f2f3f5b5b3b2");
}

TEST_CASE("sequential: parameters in order, shapes one after the other, costs summed along them") {
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  const MicroBatch<Cpu> batch;
  const Linear<Cpu> wide(build, "wide", {.in = 4, .out = 6});
  const Linear<Cpu> narrow(build, "narrow", {.in = 6, .out = 3});
  Sequential<Cpu> body, shortcut;
  body.add("wide", wide).add("relu", relu<Cpu>()).add("narrow", narrow);
  shortcut.add("around", Linear<Cpu>(build, "around", {.in = 4, .out = 3}));
  CHECK(body.output_shape({8, 4}, batch) == Shape{8, 3});
  const double cost = wide.flops({8, 4}, batch) + 8 * 6 + narrow.flops({8, 6}, batch);
  CHECK(body.flops({8, 4}, batch) == cost);
  const double around = shortcut.flops({8, 4}, batch);
  CHECK(around > 0);
  const Residual<Cpu> residual(std::move(body), std::move(shortcut));
  CHECK(residual.output_shape({8, 4}, batch) == Shape{8, 3});
  CHECK(residual.flops({8, 4}, batch) >= cost + around);  // the sum of the two may be counted too
  ParameterList<Cpu> list;
  residual.parameters(list);
  CHECK(names_of(list) == std::vector<std::string>{"wide.weight", "wide.bias", "narrow.weight",
                                                   "narrow.bias", "around.weight", "around.bias"});
}

TEST_CASE("residual: body plus identity, or plus the shortcut, forward and backward") {
  Cpu dev;
  std::string trace;
  const auto layer = [&](double factor, double shift) {
    Sequential<Cpu> one;
    one.add("affine", Affine(factor, shift, &trace));
    return one;
  };
  Tape<Cpu> tape({});
  Residual<Cpu> plain(layer(2, 1));
  CHECK(widened(plain.forward(dev, row(dev, {1, 2}), tape)) == std::vector<double>{4, 7});
  CHECK(widened(plain.backward(dev, row(dev, {1, 2}), tape)) == std::vector<double>{3, 6});
  Residual<Cpu> both(layer(2, 1), layer(10, 0));
  CHECK(widened(both.forward(dev, row(dev, {1, 2}), tape)) == std::vector<double>{13, 25});
  CHECK(widened(both.backward(dev, row(dev, {1, 2}), tape)) == std::vector<double>{12, 24});
}

TEST_CASE("residual: neither input nor gradient changes under those who hold them") {
  Cpu dev;
  std::string trace;
  Sequential<Cpu> nothing;  // body and shortcut both hand on what they were given
  Residual<Cpu> twice(std::move(nothing));
  Sequential<Cpu> affine;
  affine.add("affine", Affine(2, 1, &trace));
  Residual<Cpu> block(std::move(affine));
  Tape<Cpu> tape({});
  for (auto* residual : {&twice, &block}) {
    const auto held = row(dev, {1, 2});
    const auto y = residual->forward(dev, held.share(), tape);
    CHECK(widened(y) != widened(held));
    (void)residual->backward(dev, held.share(), tape);
    CHECK(widened(held) == std::vector<double>{1, 2});
  }
}
