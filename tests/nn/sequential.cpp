// Containers: order, shapes and costs. Their sums do not change tensors with other owners.
#include <dhp/cpu.hpp>
#include <dhp/nn/activation.hpp>
#include <dhp/nn/linear.hpp>
#include <dhp/nn/recompute.hpp>
#include <dhp/nn/sequential.hpp>
#include <tests/support/tensors.hpp>

static_assert(Layer<Residual<Cpu>, Cpu>);

namespace {

/// y = factor * x; records its calls.
struct Scaled : ElementwiseLayer<Cpu> {
  int factor;
  std::string* trace;
  Scaled(int by, std::string* notes) : factor(by), trace(notes) {}
  Tensor<Cpu> forward(Cpu& dev, Tensor<Cpu> x, Tape<Cpu>&) { return noted(dev, "f", x); }
  Tensor<Cpu> backward(Cpu& dev, Tensor<Cpu> dy, Tape<Cpu>&) { return noted(dev, "b", dy); }
  Tensor<Cpu> noted(Cpu& dev, const char* call, const Tensor<Cpu>& x) const {
    *trace += call + std::to_string(factor);
    auto y = clone(dev, x.view());
    scale(dev, factor, y.mut());
    return y;
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

TEST_CASE("sequential: runs forward in order, backward in reverse; an empty one is the identity") {
  Cpu dev;
  std::string trace;
  Sequential<Cpu> layers;
  Tape<Cpu> tape({});
  CHECK(widened(layers.forward(dev, row(dev, {1, 2}), tape)) == std::vector<double>{1, 2});
  CHECK(widened(layers.backward(dev, row(dev, {1, 2}), tape)) == std::vector<double>{1, 2});
  layers.add("a", Scaled(2, &trace)).add("b", Scaled(3, &trace)).add("c", Scaled(5, &trace));
  CHECK(widened(layers.forward(dev, row(dev, {1, 2}), tape)) == std::vector<double>{30, 60});
  CHECK(widened(layers.backward(dev, row(dev, {1, 2}), tape)) == std::vector<double>{30, 60});
  CHECK(trace == "f2f3f5b5b3b2");
}

TEST_CASE("sequential: parameters are in order, shapes are chained, and costs add up") {
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
  CHECK(residual.flops({8, 4}, batch) >= cost + around);  // may include the sum of both
  ParameterList<Cpu> list;
  residual.parameters(list);
  CHECK(names_of(list) == std::vector<std::string>{"wide.weight", "wide.bias", "narrow.weight",
                                                   "narrow.bias", "around.weight", "around.bias"});
}

TEST_CASE("sequential: the first layer adds its input gradient to a given tensor") {
  Cpu dev;
  std::string trace;
  Tape<Cpu> tape({});
  for (const bool held : {false, true}) {
    const auto onto = row(dev, {7, 9});
    const auto given = [&] { return held ? onto.share() : row(dev, {7, 9}); };
    Sequential<Cpu> none;
    CHECK(widened(none.backward_onto(dev, row(dev, {1, 2}), given(), tape)) ==
          std::vector<double>{8, 11});
    Sequential<Cpu> layers;
    layers.add("a", Scaled(2, &trace)).add("b", Scaled(3, &trace));
    static_cast<void>(layers.forward(dev, row(dev, {1, 2}), tape));
    CHECK(widened(layers.backward_onto(dev, row(dev, {1, 2}), given(), tape)) ==
          std::vector<double>{13, 21});
    for (const bool recomputed : {false, true}) {
      ModelBuilder<Cpu> build(Comm<Cpu>{});
      Linear<Cpu> product(build, "l", {.in = 2, .out = 2, .weight_init = constant(2)});
      Sequential<Cpu> body;
      if (recomputed) body.add("l", recompute<Cpu>(product));
      else body.add("l", product);
      body.add("b", Scaled(3, &trace));
      ParameterList<Cpu> parameters;
      body.parameters(parameters);
      ParameterStore<Cpu> store(dev, parameters, {.compute = DType::f64});
      static_cast<void>(body.forward(dev, row(dev, {1, 2}), tape));
      CHECK(widened(body.backward_onto(dev, row(dev, {1, 2}), given(), tape)) ==
            std::vector<double>{25, 27});
    }
    CHECK(widened(onto) == std::vector<double>{7, 9});
  }
  CHECK(tape.empty());
}
