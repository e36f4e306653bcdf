// Products of linear layers on a device that has functions for them and what stands beside them, as cuBLASLt is for
// GPUs: when they are asked, and that what comes of them is what comes of the pieces. They are made of the pieces here.
#include <dhp/cuda/kernels.hpp>
#include <dhp/nn/parameter_store.hpp>
#include <dhp/nn/recompute.hpp>
#include <dhp/parallel/tensor.hpp>
#include <tests/cuda/emulator.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

namespace tests {

struct Fused : Emulated {
  bool forward = true, backward = true, gradients = true;
  int forwards = 0, backwards = 0, both_gradients = 0;
};

}  // namespace tests

namespace dhp {

template <KernelDevice Dev>
  requires(std::same_as<Dev, tests::Fused>)
bool linear_gelu_fused_on(Dev& dev, ConstView<Dev> x, ConstView<Dev> w, ConstView<Dev> bias,
                          View<Dev> before, View<Dev> y) {
  if (!dev.forward) return false;
  ++dev.forwards;
  gemm(dev, x, w, before, {.transpose_b = true}, bias);
  activation_forward(dev, Activation::gelu, before, y);
  return true;
}
template <KernelDevice Dev>
  requires(std::same_as<Dev, tests::Fused>)
bool gelu_linear_backward_fused_on(Dev& dev, ConstView<Dev> dy, ConstView<Dev> w,
                                   ConstView<Dev> before, View<Dev> dbefore, View<Dev> dbias,
                                   double beta) {
  if (!dev.backward) return false;
  ++dev.backwards;
  gemm(dev, dy, w, dbefore);
  activation_backward(dev, Activation::gelu, before, dbefore, dbefore);
  column_sums(dev, dbefore, dbias, beta);
  return true;
}
template <KernelDevice Dev>
  requires(std::same_as<Dev, tests::Fused>)
bool linear_gradients_fused_on(Dev& dev, ConstView<Dev> dy, ConstView<Dev> x, View<Dev> dw,
                               View<Dev> dbias, double beta) {
  if (!dev.gradients) return false;
  ++dev.both_gradients;
  gemm(dev, dy, x, dw, {.transpose_a = true, .beta = beta});
  column_sums(dev, dy, dbias, beta);
  return true;
}

}  // namespace dhp

using namespace dhp;
using namespace tests;

namespace {

constexpr std::int64_t columns = 5, inner = 8;

struct Outcome {
  std::vector<double> y, dx, gradients;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

/// Of two micro-batches, whose gradients add up.
template <class Dev, class L>
Outcome run(Dev& dev, L layer, bool order_free, Mode mode = Mode::train) {
  ParameterList<Dev> parameters;
  layer.parameters(parameters);
  ParameterStore<Dev> store(dev, parameters,
                            {.compute = DType::f64, .order_free = order_free, .seed = 4});
  Cpu cpu;
  const auto values = [&](const Shape& shape, std::uint32_t use) {
    return Tensor<Dev>::from_host(dev, shape, widened(random_tensor<double>(cpu, shape, use)));
  };
  std::uint32_t use = 100;
  for (const auto& parameter : parameters)  // biases start as 0
    axpy(dev, 0.3, values(parameter->value.shape(), use++).view(), parameter->value);
  Outcome outcome;
  for (const std::uint32_t micro_batch : {0u, 1u}) {
    Tape<Dev> tape({.mode = mode});
    outcome.y = layer.forward(dev, values({6, columns}, 1 + micro_batch), tape)
                    .template to_host<double>(dev);
    if (mode == Mode::eval) continue;
    outcome.dx = layer.backward(dev, values({6, columns}, 3 + micro_batch), tape)
                     .template to_host<double>(dev);
    CHECK(tape.empty());
  }
  store.finalize_gradients(dev, {0, store.size()});
  for (const auto& parameter : parameters) {
    const auto part = clone(dev, ConstView<Dev>(parameter->gradient)).template to_host<double>(dev);
    outcome.gradients.insert(outcome.gradients.end(), part.begin(), part.end());
  }
  return outcome;
}

template <class Dev>
auto pair_of_layers() {
  ModelBuilder<Dev> build(Comm<Dev>{});
  return parallel_feed_forward(build, "first", "second", {.columns = columns, .inner = inner});
}
template <class Dev>
Linear<Dev> linear(bool bias) {
  ModelBuilder<Dev> build(Comm<Dev>{});
  return {build, "l", {.in = columns, .out = columns, .bias = bias}};
}

}  // namespace

TEST_CASE("whole linear: a feed-forward pair asks once each way") {
  for (const bool order_free : {false, true}) {
    Emulated pieces;
    Fused whole;
    CHECK(run(whole, pair_of_layers<Fused>(), order_free) ==
          run(pieces, pair_of_layers<Emulated>(), order_free));
    CHECK(whole.forwards == 2);
    CHECK(whole.backwards == 2);
    CHECK(whole.both_gradients == 0);  // the pair's biases have theirs from elsewhere
  }
}

TEST_CASE("whole linear: where the device cannot, in either pass, the pieces are used") {
  Emulated pieces;
  const auto right = run(pieces, pair_of_layers<Emulated>(), false);
  Fused whole;
  whole.forward = false;
  CHECK(run(whole, pair_of_layers<Fused>(), false) == right);
  whole.forward = true;
  whole.backward = false;
  CHECK(run(whole, pair_of_layers<Fused>(), false) == right);
  CHECK(whole.forwards == 2);
  CHECK(whole.backwards == 2);
}

TEST_CASE("whole linear: evaluation and a forward pass that is done again ask the same") {
  Emulated pieces;
  Fused whole;
  CHECK(run(whole, recompute<Fused>(pair_of_layers<Fused>()), false) ==
        run(pieces, pair_of_layers<Emulated>(), false));
  CHECK(whole.forwards == 4);
  CHECK(whole.backwards == 2);
  CHECK(run(whole, pair_of_layers<Fused>(), false, Mode::eval).y ==
        run(pieces, pair_of_layers<Emulated>(), false, Mode::eval).y);
  CHECK(whole.forwards == 6);
}

TEST_CASE("whole linear: a layer with a bias asks for both gradients at once") {
  for (const bool order_free : {false, true}) {
    Emulated pieces;
    Fused whole;
    const auto right = run(pieces, linear<Emulated>(true), order_free);
    CHECK(run(whole, linear<Fused>(true), order_free) == right);
    CHECK(whole.both_gradients == 2);
    whole.gradients = false;
    CHECK(run(whole, linear<Fused>(true), order_free) == right);
    whole.gradients = true;
    CHECK(run(whole, linear<Fused>(false), order_free) ==
          run(pieces, linear<Emulated>(false), order_free));
    CHECK(whole.both_gradients == 2);
  }
}
