// ResidualBatchNorm is the composition that it stands for: a Residual around body and norm, and a ReLU behind it. And what
// a device with one function for the whole norm is asked, and when.
#include <dhp/cpu.hpp>
#include <tests/support/gradients.hpp>
#include <tests/support/residual.hpp>

#include <doctest/doctest.h>

#include <limits>

using namespace tests;

namespace {

constexpr std::int64_t channels = 5;
const Shape shape{3, 4, 3, channels};

enum class Shortcut { identity, convolution };

/// Its parameters, and so their random numbers, are made in the same order by both.
template <class Dev>
struct Parts {
  Parts(ModelBuilder<Dev>& build, bool relu, Shortcut kind)
      : norm(build, "bn", {.channels = channels, .relu = relu}) {
    body.add("conv", Conv2d<Dev>(build, "conv", {.in = channels, .out = channels}));
    if (kind == Shortcut::convolution)
      shortcut.add("around", Conv2d<Dev>(build, "around", {.in = channels, .out = channels}));
  }
  Sequential<Dev> body, shortcut;
  BatchNorm<Dev> norm;
};

Sequential<Cpu> fused(ModelBuilder<Cpu>& build, bool relu, Shortcut kind) {
  Parts<Cpu> parts(build, relu, kind);
  Sequential<Cpu> made;
  made.add("block", ResidualBatchNorm<Cpu>(std::move(parts.body), "bn", std::move(parts.norm),
                                           std::move(parts.shortcut)));
  return made;
}
Sequential<Cpu> composed(ModelBuilder<Cpu>& build, bool relu, Shortcut kind) {
  Parts<Cpu> parts(build, false, kind);
  parts.body.add("bn", std::move(parts.norm));
  Sequential<Cpu> made;
  made.add("block", Residual<Cpu>(std::move(parts.body), std::move(parts.shortcut)));
  if (relu) made.add("relu", dhp::relu<Cpu>());
  return made;
}

struct Outcome {
  std::vector<std::string> names;
  std::vector<double> y, evaluated, dx, gradients;
};

/// Input and gradient are values of streams.
template <class T, class L>
Outcome run(L layer, std::uint32_t stream) {
  Cpu dev;
  ParameterList<Cpu> parameters;
  layer.parameters(parameters);
  ParameterStore<Cpu> store(dev, parameters, {.compute = dtype_of<T>(), .seed = 4});
  std::uint32_t use = 100;
  for (const auto& parameter : parameters)
    if (parameter->spec.shape.count() == channels)  // of the norm: away from 0 and 1
      axpy(dev, 0.1, random_tensor<Accumulator<T>>(dev, {channels}, use++).view(),
           parameter->value);
  Outcome outcome;
  Tape<Cpu> tape({}), evaluation({.mode = Mode::eval});
  outcome.evaluated = widened(layer.forward(dev, random_tensor<T>(dev, shape, stream), evaluation));
  CHECK(evaluation.empty());
  outcome.y = widened(layer.forward(dev, random_tensor<T>(dev, shape, stream), tape));
  outcome.dx = widened(layer.backward(dev, random_tensor<T>(dev, shape, stream + 50), tape));
  CHECK(tape.empty());
  for (const auto& parameter : parameters) {
    outcome.names.push_back(parameter->spec.name);
    // With what running statistics are moved by.
    const auto part = widened(clone(dev, ConstView<Cpu>(parameter->gradient)));
    outcome.gradients.insert(outcome.gradients.end(), part.begin(), part.end());
  }
  return outcome;
}

double size_of_values(const std::vector<double>& values) {
  double most = 1;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

bool positive_alike(const std::vector<double>& one, const std::vector<double>& other) {
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [](double a, double b) { return (a > 0) == (b > 0); });
}

}  // namespace

TEST_CASE_TEMPLATE("residual norm: what a residual, a norm and a ReLU come to, in all types", T,
                   double, float, bf16, f16) {
  // In 16 bits the composition rounds twice what is rounded once here.
  const double tolerance = std::is_same_v<T, double>  ? 1e-13
                           : std::is_same_v<T, float> ? 1e-5
                           : std::is_same_v<T, f16>   ? 4e-3
                                                      : 3e-2;
  for (const bool relu : {false, true})
    for (const auto kind : {Shortcut::identity, Shortcut::convolution}) {
      CAPTURE(relu);
      Outcome found, right;
      // Where y is next to 0, a rounding decides what passes the ReLU: such inputs are left out.
      std::uint32_t stream = 0;
      do {
        REQUIRE(++stream < 50);
        ModelBuilder<Cpu> build(Comm<Cpu>{}), other(Comm<Cpu>{});
        found = run<T>(fused(build, relu, kind), stream);
        right = run<T>(composed(other, relu, kind), stream);
      } while (!positive_alike(found.y, right.y));
      CHECK(found.names == right.names);
      CHECK(distance(found.y, right.y, size_of_values(right.y)) <= tolerance);
      CHECK(distance(found.evaluated, right.evaluated, size_of_values(right.evaluated)) <=
            tolerance);
      CHECK(distance(found.dx, right.dx, size_of_values(right.dx)) <= tolerance);
      CHECK(distance(found.gradients, right.gradients, size_of_values(right.gradients)) <=
            tolerance);

      ModelBuilder<Cpu> again(Comm<Cpu>{});
      const auto recomputed = run<T>(recompute<Cpu>(fused(again, relu, kind)), stream);
      CHECK(recomputed.y == found.y);
      CHECK(recomputed.dx == found.dx);
      CHECK(recomputed.gradients == found.gradients);  // the statistics were added once
    }
}

TEST_CASE("residual norm: neither input nor gradient changes under those who hold them") {
  Cpu dev;
  for (const bool relu : {false, true})
    for (const bool empty_body : {false, true}) {
      ModelBuilder<Cpu> build(Comm<Cpu>{});
      Parts<Cpu> parts(build, relu, Shortcut::identity);
      ResidualBatchNorm<Cpu> block(empty_body ? Sequential<Cpu>() : std::move(parts.body), "bn",
                                   std::move(parts.norm));
      ParameterList<Cpu> parameters;
      block.parameters(parameters);
      ParameterStore<Cpu> store(dev, parameters, {.compute = DType::f64, .seed = 4});
      const auto held = random_tensor<double>(dev, shape, 1);
      const auto dy = random_tensor<double>(dev, shape, 2);
      const auto kept = widened(held), kept_dy = widened(dy);
      Tape<Cpu> tape({});
      const auto y = block.forward(dev, held.share(), tape);
      const auto kept_y = widened(y);
      const auto dx = block.backward(dev, dy.share(), tape);
      CHECK(widened(held) == kept);
      CHECK(widened(dy) == kept_dy);
      CHECK(widened(y) == kept_y);
      CHECK(widened(dx) != kept_dy);
      CHECK(tape.empty());
    }
}

TEST_CASE("residual norm: shapes and costs are those of its parts") {
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  const MicroBatch<Cpu> batch;
  Parts<Cpu> parts(build, true, Shortcut::convolution);
  const double cost = parts.body.flops(shape, batch) + parts.norm.flops(shape, batch) +
                      parts.shortcut.flops(shape, batch);
  const ResidualBatchNorm<Cpu> block(std::move(parts.body), "bn", std::move(parts.norm),
                                     std::move(parts.shortcut));
  CHECK(block.output_shape(shape, batch) == shape);
  CHECK(block.flops(shape, batch) == cost);
}

TEST_CASE("residual norm: the norm has a name where its output is not finite") {
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  auto layer = fused(build, true, Shortcut::identity);
  ParameterList<Cpu> parameters;
  layer.parameters(parameters);
  ParameterStore<Cpu> store(dev, parameters, {});
  for (const auto& parameter : parameters)
    if (parameter->spec.name == "bn.bias")
      fill(dev, parameter->value, std::numeric_limits<double>::infinity());
  Tape<Cpu> tape({.find_nonfinite = true});
  CHECK(message_of([&] { (void)layer.forward(dev, random_tensor<float>(dev, shape, 1), tape); }) ==
        "the output of layer block > bn is not finite");
}

TEST_CASE("residual norm: a residual of another shape is refused") {
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  Parts<Cpu> parts(build, true, Shortcut::identity);
  Tape<Cpu> tape({});
  CHECK(message_of([&] {
          (void)parts.norm.forward(dev, random_tensor<float>(dev, {4, channels}, 1),
                                   random_tensor<float>(dev, {2, 2, channels}, 1), tape);
        }) == "batch norm: a residual of [2, 2, 5] cannot be added to [4, 5]");
}
