// A batch norm on a device that has one function for all of it, as cuDNN is for GPUs: when it is asked, and that what
// comes of it is what comes of the pieces. The function is made of the pieces here.
#include <dhp/cuda/kernels.hpp>
#include <dhp/nn/parameter_store.hpp>
#include <dhp/nn/recompute.hpp>
#include <dhp/nn/residual_batch_norm.hpp>
#include <tests/cuda/emulator.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

namespace tests {

struct Whole : Emulated {
  bool backward_too = true;
  int forwards = 0, backwards = 0;
};

}  // namespace tests

namespace dhp {

template <KernelDevice Dev>
  requires(std::same_as<Dev, tests::Whole>)
std::optional<BatchNormResult<Dev>> batch_norm_fused_on(Dev& dev, ConstView<Dev> x,
                                                        ConstView<Dev> residual,
                                                        ConstView<Dev> gamma, ConstView<Dev> beta,
                                                        double epsilon, bool relu) {
  if (!relu) return {};
  ++dev.forwards;
  const auto rows = static_cast<double>(x.rows());
  const auto vector = [&] { return Tensor<Dev>(dev, gamma.dtype(), {x.columns()}); };
  BatchNormResult<Dev> made{
      Tensor<Dev>(dev, x.dtype(), x.shape()), vector(), vector(), vector(), {}};
  batch_norm_sums(dev, x, made.mean.mut());
  scale(dev, 1 / rows, made.mean.mut());
  batch_norm_squared_deviations(dev, x, made.mean, made.squared_deviations.mut());
  auto variance = clone(dev, made.squared_deviations.view());
  scale(dev, 1 / rows, variance.mut());
  rsqrt(dev, variance.view(), epsilon, made.inv_std.mut());
  batch_norm_apply(dev, x, {made.mean, made.inv_std, gamma, beta}, residual, relu, made.y.mut());
  made.signs = clone(dev, made.y.view());
  return made;
}
template <KernelDevice Dev>
  requires(std::same_as<Dev, tests::Whole>)
std::optional<BatchNormGradients<Dev>> batch_norm_fused_backward_on(
    Dev& dev, ConstView<Dev> dy, ConstView<Dev> x, const BatchNormVectors<Dev>& vectors,
    ConstView<Dev> signs, bool residual) {
  if (!dev.backward_too) return {};
  ++dev.backwards;
  BatchNormGradients<Dev> made{Tensor<Dev>(dev, x.dtype(), x.shape()),
                               Tensor<Dev>(dev, x.dtype(), x.shape()),
                               Tensor<Dev>(dev, vectors.mean.dtype(), {2, x.columns()})};
  const auto row = [&](int at) { return made.sums.mut().slice(at, at + 1); };
  batch_norm_residual_backward_sums(dev, dy, signs, x, vectors, made.dresidual.mut(), row(0),
                                    row(1));
  batch_norm_backward_apply(dev, made.dresidual.view(), x, vectors, false, row(0), row(1),
                            static_cast<double>(x.rows()), made.dx.mut());
  if (!residual) made.dresidual = {};
  return made;
}

}  // namespace dhp

using namespace dhp;
using namespace tests;

namespace {

const Shape shape{6, 4};

template <class Dev>
Tensor<Dev> values(Dev& dev, std::uint32_t use) {
  Cpu cpu;
  return Tensor<Dev>::from_host(dev, shape, widened(random_tensor<double>(cpu, shape, use)));
}

struct Outcome {
  std::vector<double> y, dx, gradients;
};

template <class Dev, class L>
Outcome run(Dev& dev, L layer, Mode mode = Mode::train) {
  ParameterList<Dev> parameters;
  layer.parameters(parameters);
  ParameterStore<Dev> store(dev, parameters, {.compute = DType::f64, .seed = 4});
  Tape<Dev> tape({.mode = mode});
  Outcome outcome;
  outcome.y = layer.forward(dev, values(dev, 1), tape).template to_host<double>(dev);
  if (mode == Mode::train)
    outcome.dx = layer.backward(dev, values(dev, 2), tape).template to_host<double>(dev);
  CHECK(tape.empty());
  for (const auto& parameter : parameters) {  // with what running statistics are moved by
    const auto part = clone(dev, ConstView<Dev>(parameter->gradient)).template to_host<double>(dev);
    outcome.gradients.insert(outcome.gradients.end(), part.begin(), part.end());
  }
  return outcome;
}

template <class Dev>
BatchNorm<Dev> norm(bool relu) {
  ModelBuilder<Dev> build(Comm<Dev>{});
  return {build, "bn", {.channels = 4, .relu = relu}};
}
template <class Dev>
ResidualBatchNorm<Dev> block(bool relu) {
  return {{}, "bn", norm<Dev>(relu)};
}

void check_same(const Outcome& found, const Outcome& right) {
  CHECK(found.y == right.y);
  CHECK(distance(found.dx, right.dx) <= 1e-14);
  CHECK(distance(found.gradients, right.gradients) <= 1e-14);
}

}  // namespace

TEST_CASE("whole norm: what it makes is what the pieces make") {
  Emulated pieces;
  Whole whole;
  check_same(run(whole, norm<Whole>(true)), run(pieces, norm<Emulated>(true)));
  CHECK(whole.forwards == 1);
  CHECK(whole.backwards == 1);
  check_same(run(whole, block<Whole>(true)), run(pieces, block<Emulated>(true)));
  CHECK(whole.forwards == 2);
  CHECK(whole.backwards == 2);
}

TEST_CASE("whole norm: where the device cannot, in either pass, the pieces are used") {
  Emulated pieces;
  Whole whole;
  for (const bool relu : {false, true}) {
    whole.backward_too = false;
    check_same(run(whole, norm<Whole>(relu)), run(pieces, norm<Emulated>(relu)));
    check_same(run(whole, block<Whole>(relu)), run(pieces, block<Emulated>(relu)));
  }
  CHECK(whole.forwards == 2);
  CHECK(whole.backwards == 0);
  // Signs that nobody made are not handed on.
  whole.backward_too = true;
  check_same(run(whole, block<Whole>(false)), run(pieces, block<Emulated>(false)));
  CHECK(whole.backwards == 0);
}

TEST_CASE("whole norm: a recomputed forward pass adds no statistics; evaluation does not ask") {
  Emulated pieces;
  Whole whole;
  check_same(run(whole, recompute<Whole>(block<Whole>(true))), run(pieces, block<Emulated>(true)));
  CHECK(whole.forwards == 2);
  CHECK(whole.backwards == 1);
  check_same(run(whole, block<Whole>(true), Mode::eval),
             run(pieces, block<Emulated>(true), Mode::eval));
  CHECK(whole.forwards == 2);
}
