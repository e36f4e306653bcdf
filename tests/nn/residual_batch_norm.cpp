// ResidualBatchNorm equals a Residual around body and norm, followed by a ReLU.
#include <dhp/cpu.hpp>
#include <tests/support/layer_run.hpp>

namespace {

constexpr std::int64_t channels = 5;
const Shape shape{3, 4, 3, channels};

enum class Shortcut { identity, convolution };

struct Parts {
  Parts(ModelBuilder<Cpu>& build, bool relu, Shortcut kind)
      : norm(build, "bn", {.channels = channels, .relu = relu}) {
    body.add("conv", Conv2d<Cpu>(build, "conv", {.in = channels, .out = channels}));
    if (kind == Shortcut::convolution)
      shortcut.add("around", Conv2d<Cpu>(build, "around", {.in = channels, .out = channels}));
  }
  Sequential<Cpu> body, shortcut;
  BatchNorm<Cpu> norm;
};

Sequential<Cpu> fused(ModelBuilder<Cpu>& build, bool relu, Shortcut kind) {
  Parts parts(build, relu, kind);
  Sequential<Cpu> result;
  result.add("block", ResidualBatchNorm<Cpu>(std::move(parts.body), "bn", std::move(parts.norm),
                                             std::move(parts.shortcut)));
  return result;
}
Sequential<Cpu> composed(ModelBuilder<Cpu>& build, bool relu, Shortcut kind) {
  Parts parts(build, false, kind);
  parts.body.add("bn", std::move(parts.norm));
  Sequential<Cpu> result;
  result.add("block", Residual<Cpu>(std::move(parts.body), std::move(parts.shortcut)));
  if (relu) result.add("relu", dhp::relu<Cpu>());
  return result;
}

LayerRun run(const LayerCase& each, bool is_fused, bool relu, Shortcut kind) {
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  return run_layer(is_fused ? fused(build, relu, kind) : composed(build, relu, kind), each);
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

TEST_CASE("residual norm: results match a residual, a norm and a ReLU in all types") {
  // In 16 bits the composition rounds twice and the layer once.
  for (const auto& type :
       {std::pair{DType::f64, 1e-13}, {DType::f32, 1e-5}, {DType::f16, 4e-3}, {DType::bf16, 3e-2}})
    for (const bool relu : {false, true})
      for (const auto kind : {Shortcut::identity, Shortcut::convolution}) {
        INFO("relu ", relu, " type.first ", type.first);
        const double tolerance = type.second;
        LayerCase each{.shape = shape, .compute = type.first, .stream = 0};
        LayerRun found, expected;
        // Inputs with y near 0 are avoided, because rounding would decide whether the ReLU passes them.
        do {
          REQUIRE(++each.stream < 50);
          found = run(each, true, relu, kind);
          expected = run(each, false, relu, kind);
        } while (!positive_alike(found.y, expected.y));
        CHECK(found.names == expected.names);
        CHECK(distance(found.y, expected.y, size_of_values(expected.y)) <= tolerance);
        CHECK(distance(found.dx, expected.dx, size_of_values(expected.dx)) <= tolerance);
        double largest = 1;  // includes sums of running statistics
        for (const auto& gradient : expected.gradients)
          largest = std::max(largest, size_of_values(gradient));
        for (std::size_t at = 0; at < expected.gradients.size(); ++at)
          CHECK(distance(found.gradients[at], expected.gradients[at], largest) <= tolerance);

        auto again = each;
        again.recomputed = true;
        const auto recomputed = run(again, true, relu, kind);
        CHECK(recomputed.y == found.y);
        CHECK(recomputed.dx == found.dx);
        CHECK(recomputed.gradients == found.gradients);  // the statistics are added only once

        each.mode = StepContext::Mode::eval;
        const auto evaluated = run(each, false, relu, kind).y;
        CHECK(distance(run(each, true, relu, kind).y, evaluated, size_of_values(evaluated)) <=
              tolerance);
      }
}

TEST_CASE("residual norm: shared inputs and gradients are not changed") {
  Cpu dev;
  for (const bool relu : {false, true})
    for (const bool empty_body : {false, true}) {
      ModelBuilder<Cpu> build(Comm<Cpu>{});
      Parts parts(build, relu, Shortcut::identity);
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
  Parts parts(build, true, Shortcut::convolution);
  const double cost = parts.body.flops(shape, batch) + parts.norm.flops(shape, batch) +
                      parts.shortcut.flops(shape, batch);
  const ResidualBatchNorm<Cpu> block(std::move(parts.body), "bn", std::move(parts.norm),
                                     std::move(parts.shortcut));
  CHECK(block.output_shape(shape, batch) == shape);
  CHECK(block.flops(shape, batch) == cost);
}

TEST_CASE("residual norm: a non-finite output names the norm") {
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  auto layer = fused(build, true, Shortcut::identity);
  ParameterList<Cpu> parameters;
  layer.parameters(parameters);
  ParameterStore<Cpu> store(dev, parameters, {});
  for (const auto& parameter : parameters)
    if (parameter->spec.name == "bn.bias")
      fill(dev, parameter->value, std::numeric_limits<double>::infinity());
  dhp::detail::FirstNonFinite first;
  Tape<Cpu> tape({.first_nonfinite = &first});
  (void)layer.forward(dev, random_tensor<float>(dev, shape, 1), tape);
  CHECK(concat(first.what, " of ", first.layer) == "output of block > bn");
}

TEST_CASE("residual norm: a residual of another shape is refused") {
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  Parts parts(build, true, Shortcut::identity);
  Tape<Cpu> tape({});
  CHECK(message_of([&] {
          (void)parts.norm.forward(dev, random_tensor<float>(dev, {4, channels}, 1),
                                   random_tensor<float>(dev, {2, 2, channels}, 1), tape);
        }) == "batch norm: a residual of [2, 2, 5] cannot be added to [4, 5]");
}

TEST_CASE("residual: a convolution without an input gradient is refused in a body") {
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  const Conv2dOptions options{.in = channels, .out = channels, .input_gradient = false};
  Sequential<Cpu> body, block;
  body.add("conv", Conv2d<Cpu>(build, "conv", options));
  block.add("block", Residual<Cpu>(std::move(body)));
  CHECK(has(message_of([&] { (void)run_layer(std::move(block), {.shape = shape}); }),
            "conv: a Conv2d with input_gradient = false begins a model; here another layer has"));
}
