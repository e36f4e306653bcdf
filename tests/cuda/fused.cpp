// Layers on a device with fused functions, like those of cuBLASLt and cuDNN. Checks when the layers call them, and that
// fused and unfused results agree. Here the fused functions are made of the unfused ones.
#include <dhp/cuda/kernels.hpp>
#include <dhp/nn/conv2d.hpp>
#include <dhp/nn/feed_forward.hpp>
#include <dhp/nn/parameter_store.hpp>
#include <dhp/nn/recompute.hpp>
#include <dhp/nn/residual_batch_norm.hpp>
#include <tests/cuda/emulator.hpp>
#include <tests/support/layer_run.hpp>

namespace tests {

using Dev = Emulated;

/// How often each fused function has run.
struct Calls {
  int forward = 0, backward = 0, gradients = 0;
  int norm = 0, norm_backward = 0, sums = 0, apply = 0, to_norm = 0;
  friend bool operator==(const Calls&, const Calls&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Calls& of) {
    for (const int calls : {of.forward, of.backward, of.gradients, of.norm, of.norm_backward,
                            of.sums, of.apply, of.to_norm})
      out << calls << ' ';
    return out;
  }
};
using Functions = std::vector<int Calls::*>;

/// All devices of this program are Fused, because another device type would compile the layers and kernels again.
struct Fused : Dev {
  explicit Fused(Functions lacking) : absent(std::move(lacking)) {}
  /// Returns whether the device has the function, and counts the call.
  static bool runs(Dev& dev, int Calls::*function) {
    auto& of = static_cast<Fused&>(dev);
    const bool has_it = std::find(of.absent.begin(), of.absent.end(), function) == of.absent.end();
    of.calls.*function += has_it;
    return has_it;
  }
  Functions absent;
  Calls calls;
};

bool linear_gelu_fused_on(Dev& dev, ConstView<Dev> x, ConstView<Dev> w, ConstView<Dev> bias,
                          View<Dev> before, View<Dev> y) {
  if (!Fused::runs(dev, &Calls::forward)) return false;
  gemm(dev, x, w, before, {.transpose_b = true}, bias);
  activation_forward(dev, Activation::gelu, before, y);
  return true;
}
bool gelu_linear_backward_fused_on(Dev& dev, ConstView<Dev> dy, ConstView<Dev> w,
                                   ConstView<Dev> before, View<Dev> dbefore) {
  if (!Fused::runs(dev, &Calls::backward)) return false;
  gemm(dev, dy, w, dbefore);
  activation_backward(dev, Activation::gelu, before, dbefore, dbefore);
  return true;
}
bool linear_gradients_fused_on(Dev& dev, ConstView<Dev> dy, ConstView<Dev> x, View<Dev> dw,
                               View<Dev> dbias, double beta) {
  if (!Fused::runs(dev, &Calls::gradients)) return false;
  gemm(dev, dy, x, dw, {.transpose_a = true, .beta = beta});
  column_sums(dev, dy, dbias, beta);
  return true;
}

std::optional<detail::BatchNormResult<Dev>> batch_norm_fused_on(Dev& dev, ConstView<Dev> x,
                                                                ConstView<Dev> residual,
                                                                ConstView<Dev> gamma,
                                                                ConstView<Dev> beta, double epsilon,
                                                                bool relu) {
  if ((!relu && !residual.empty()) || !Fused::runs(dev, &Calls::norm)) return {};
  const auto rows = static_cast<double>(x.rows());
  const auto vector = [&] { return Tensor<Dev>(dev, gamma.dtype(), {x.columns()}); };
  detail::BatchNormResult<Dev> result{
      Tensor<Dev>(dev, x.dtype(), x.shape()), vector(), vector(), vector(), {}};
  column_sums(dev, x, result.mean.mut(), 0);
  scale(dev, 1 / rows, result.mean.mut());
  detail::batch_norm_squared_deviations(dev, x, result.mean, result.squared_deviations.mut());
  auto variance = clone(dev, result.squared_deviations.view());
  scale(dev, 1 / rows, variance.mut());
  rsqrt(dev, variance.view(), epsilon, result.inv_std.mut());
  detail::batch_norm_apply(dev, x, {result.mean, result.inv_std, gamma, beta}, residual, relu,
                           result.y.mut());
  if (relu) result.signs = clone(dev, result.y.view());
  return result;
}
std::optional<detail::BatchNormResult<Dev>> batch_norm_fused_apply_on(
    Dev& dev, ConstView<Dev> x, const detail::BatchNormVectors<Dev>& vectors,
    ConstView<Dev> residual, bool relu) {
  if ((!relu && !residual.empty()) || !Fused::runs(dev, &Calls::apply)) return {};
  detail::BatchNormResult<Dev> result;
  result.y = Tensor<Dev>(dev, x.dtype(), x.shape());
  detail::batch_norm_apply(dev, x, vectors, residual, relu, result.y.mut());
  if (relu) result.signs = clone(dev, result.y.view());
  return result;
}
std::optional<Tensor<Dev>> conv2d_forward_with_sums_on(Dev& dev, ConstView<Dev> x, ConstView<Dev> w,
                                                       Conv2dGeometry geometry, View<Dev> y) {
  if (!Fused::runs(dev, &Calls::sums)) return {};
  conv2d_forward(dev, x, w, geometry, y);
  Tensor<Dev> sums(dev, y.dtype(), {2, y.columns()});
  const auto zero = Tensor<Dev>::zeros(dev, y.dtype(), {y.columns()});
  column_sums(dev, y, sums.mut().slice(0, 1), 0);
  detail::batch_norm_squared_deviations(dev, y, zero, sums.mut().slice(1, 2));
  return sums;
}
std::optional<Tensor<Dev>> conv2d_backward_data_to_norm_on(
    Dev& dev, ConstView<Dev> dy, ConstView<Dev> w, Conv2dGeometry geometry, ConstView<Dev> onto,
    const detail::NormTrace<Dev>& norm, View<Dev> dx) {
  if (!Fused::runs(dev, &Calls::to_norm)) return {};
  if (!onto.empty()) cast(dev, onto, dx);
  conv2d_backward_data(dev, dy, w, geometry, dx, onto.empty() ? 0 : 1);
  Tensor<Dev> sums(dev, dx.dtype(), {2, dx.columns()});
  const auto ones = Tensor<Dev>(dev, dx.dtype(), {dx.columns()});
  const detail::BatchNormVectors<Dev> vectors{norm.mean, norm.inv_std, ones, ones};
  // This device stores y itself as the signs.
  detail::batch_norm_backward_sums(dev, dx, norm.x, vectors, true, sums.mut().slice(0, 1),
                                   sums.mut().slice(1, 2), norm.signs, dx);
  return sums;
}
std::optional<detail::BatchNormGradients<Dev>> batch_norm_fused_backward_on(
    Dev& dev, ConstView<Dev> dy, ConstView<Dev> x, const detail::BatchNormVectors<Dev>& vectors,
    ConstView<Dev> signs, bool residual) {
  if (!Fused::runs(dev, &Calls::norm_backward)) return {};
  detail::BatchNormGradients<Dev> result{Tensor<Dev>(dev, x.dtype(), x.shape()),
                                         Tensor<Dev>(dev, x.dtype(), x.shape()),
                                         Tensor<Dev>(dev, vectors.mean.dtype(), {2, x.columns()})};
  const auto row = [&](int at) { return result.sums.mut().slice(at, at + 1); };
  if (signs.empty()) {
    cast(dev, dy, result.dresidual.mut());
    detail::batch_norm_backward_sums(dev, dy, x, vectors, false, row(0), row(1));
  } else {
    detail::batch_norm_backward_sums(dev, dy, x, vectors, true, row(0), row(1), signs,
                                     result.dresidual.mut());
  }
  detail::batch_norm_backward_apply(dev, result.dresidual.view(), x, vectors, false, row(0), row(1),
                                    static_cast<double>(x.rows()), result.dx.mut());
  if (!residual) result.dresidual = {};
  return result;
}

}  // namespace tests

namespace {

const Shape rows{6, 5}, image{6, 4}, pixels{2, 3, 3, 4};

ModelBuilder<Dev> builder() { return ModelBuilder<Dev>(Comm<Dev>{}); }
auto pair_of_layers() {
  auto build = builder();
  return FeedForward<Dev>(build, "first", "second", {.columns = 5, .inner = 8});
}
Linear<Dev> linear(bool bias) {
  auto build = builder();
  return {build, "l", {.in = 5, .out = 5, .bias = bias}};
}
BatchNorm<Dev> norm(bool relu, const std::string& name = "bn") {
  auto build = builder();
  return {build, name, {.channels = 4, .relu = relu}};
}
ResidualBatchNorm<Dev> block(bool relu) { return {{}, "bn", norm(relu)}; }
Conv2d<Dev> convolution(const std::string& name, int kernel) {
  auto build = builder();
  return {build,
          name,
          {.in = 4, .out = 4, .kernel = kernel, .padding = kernel / 2, .column_sums = true}};
}
/// A convolution and its norm, with or without a residual.
ResidualBatchNorm<Dev> convolved_block() {
  Sequential<Dev> body;
  body.add("conv", convolution("conv", 3));
  return {std::move(body), "bn", norm(true)};
}
Sequential<Dev> convolved(bool relu) {
  Sequential<Dev> layers;
  layers.add("conv", convolution("conv", 3)).add("bn", norm(relu));
  return layers;
}
/// Returns the calls of a device that lacks the functions `absent`. Checks that its results equal those of a device
/// without any, to the bit or, for `pixels`, nearly.
Calls calls_of(const LayerCase& each, const auto& make, const Functions& absent = {}) {
  const double apart = each.shape == pixels ? 1e-13 : 0;
  Fused fused(absent);
  Fused pieces({&Calls::forward, &Calls::backward, &Calls::gradients, &Calls::norm,
                &Calls::norm_backward, &Calls::sums, &Calls::apply, &Calls::to_norm});
  const auto found = run_layer<Dev>(fused, make(), each);
  const auto expected = run_layer<Dev>(pieces, make(), each);
  CHECK(distance(found.y, expected.y) <= apart);
  CHECK(distance(found.dx, expected.dx) <= std::max(apart, 1e-14));
  for (std::size_t at = 0; at < expected.gradients.size(); ++at)  // including running statistics
    CHECK(distance(found.gradients[at], expected.gradients[at]) <= std::max(apart, 1e-14));
  return fused.calls;
}
LayerCase evaluated(const Shape& shape) {
  return {.shape = shape, .mode = StepContext::Mode::eval};
}

}  // namespace

TEST_CASE("fused linear: a feed-forward pair calls the device once in each direction") {
  for (const bool deterministic : {false, true})  // layer 1's bias is computed elsewhere
    CHECK(calls_of({.shape = rows, .deterministic = deterministic}, pair_of_layers) ==
          Calls{.forward = 2, .backward = 2, .gradients = 2});
}

TEST_CASE("fused linear: unfused operations are used if the device lacks either pass") {
  CHECK(calls_of({.shape = rows}, pair_of_layers, {&Calls::forward}) ==
        Calls{.backward = 2, .gradients = 2});
  CHECK(calls_of({.shape = rows}, pair_of_layers, {&Calls::backward}) ==
        Calls{.forward = 2, .gradients = 2});
}

TEST_CASE("fused linear: evaluation and recomputation call the same fused operations") {
  CHECK(calls_of({.shape = rows}, [] { return recompute<Dev>(pair_of_layers()); }) ==
        Calls{.forward = 4, .backward = 2, .gradients = 2});
  CHECK(calls_of(evaluated(rows), pair_of_layers) == Calls{.forward = 2});
}

TEST_CASE("fused linear: a layer with a bias gets both parameter gradients from one call") {
  for (const bool deterministic : {false, true}) {
    const LayerCase each{.shape = rows, .deterministic = deterministic};
    CHECK(calls_of(each, [] { return linear(true); }) == Calls{.gradients = 2});
    CHECK(calls_of(each, [] { return linear(true); }, {&Calls::gradients}) == Calls{});
    CHECK(calls_of(each, [] { return linear(false); }) == Calls{});
  }
}

TEST_CASE("fused norm: equals the unfused operations, with one call in each direction") {
  const Calls both{.norm = 2, .norm_backward = 2};
  for (const bool relu : {false, true})
    CHECK(calls_of({.shape = image}, [=] { return norm(relu); }) == both);
  CHECK(calls_of({.shape = image}, [] { return block(true); }) == both);
}

TEST_CASE("fused norm: unfused operations are used if the device lacks either pass") {
  const Calls forward{.norm = 2};
  for (const bool relu : {false, true}) {
    CHECK(calls_of({.shape = image}, [=] { return norm(relu); }, {&Calls::norm_backward}) ==
          forward);
    CHECK(calls_of({.shape = image}, [=] { return block(relu); }, {&Calls::norm_backward}) ==
          (relu ? forward : Calls{}));  // a residual needs a ReLU
  }
  // Without signs from the forward pass, the fused backward pass is not called.
  CHECK(calls_of({.shape = image}, [] { return block(false); }) == Calls{});
}

TEST_CASE("fused norm: a recomputed pass adds no statistics; evaluation calls nothing") {
  CHECK(calls_of({.shape = image}, [] { return recompute<Dev>(block(true)); }) ==
        Calls{.norm = 4, .norm_backward = 2});
  CHECK(calls_of(evaluated(image), [] { return block(true); }) == Calls{});
}

TEST_CASE("fused norm: a convolution's sums save the norm one pass over its input") {
  for (const bool deterministic : {false, true}) {
    const LayerCase each{.shape = pixels, .deterministic = deterministic};
    const Calls all{.norm_backward = 2, .sums = 2, .apply = 2};
    for (const bool relu : {false, true})
      CHECK(calls_of(each, [=] { return convolved(relu); }) == all);
    CHECK(calls_of(each, convolved_block) == all);
  }
}

TEST_CASE("fused norm: without the sums, or a function for them, other paths are taken") {
  const LayerCase each{.shape = pixels};
  CHECK(calls_of(each, convolved_block, {&Calls::apply}) == Calls{.sums = 2});
  CHECK(calls_of(each, convolved_block, {&Calls::norm_backward}) == Calls{.sums = 2, .apply = 2});
  CHECK(calls_of(each, convolved_block, {&Calls::norm_backward, &Calls::sums}) == Calls{.norm = 2});
}

TEST_CASE("fused norm: a recomputed pass takes the sums again; evaluation takes none") {
  CHECK(calls_of({.shape = pixels}, [] { return recompute<Dev>(convolved_block()); }) ==
        Calls{.norm_backward = 2, .sums = 4, .apply = 4});
  CHECK(calls_of(evaluated(pixels), convolved_block) == Calls{});
}

namespace {

/// Returns x, and twice the incoming gradient. The sums attached to the gradient are then no longer valid.
struct Doubled : ElementwiseLayer<Dev> {
  Tensor<Dev> forward(Dev&, Tensor<Dev> x, Tape<Dev>&) { return x; }
  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>&) {
    scale(dev, 2, dy.mut());
    return dy;
  }
};
/// Three residual blocks; with `between`, another layer lies before the last block.
Sequential<Dev> blocks(bool between = false) {
  Sequential<Dev> layers;
  layers.add("a", convolved_block()).add("b", convolved_block());
  if (between) layers.add("doubled", Doubled());
  layers.add("c", convolved_block());
  return layers;
}
/// Two bottlenecks, each with two convolutions, a norm between them, and one norm in the shortcut.
Sequential<Dev> two_bottlenecks(bool recomputed) {
  Sequential<Dev> layers;
  for (const std::string name : {"a", "b"}) {
    Sequential<Dev> body, shortcut;
    body.add("conv1", convolution("conv1", 1))
        .add("bn1", norm(true, "bn1"))
        .add("conv2", convolution("conv2", 3));
    shortcut.add("conv3", convolution("conv3", 1)).add("bn3", norm(false, "bn3"));
    ResidualBatchNorm<Dev> block(std::move(body), "bn2", norm(true, "bn2"), std::move(shortcut));
    if (recomputed) layers.add(name, recompute<Dev>(std::move(block)));
    else layers.add(name, std::move(block));
  }
  return layers;
}

}  // namespace

TEST_CASE("fused norm: a convolution's backward pass includes the previous norm's ReLU and sums") {
  for (const bool between : {false, true}) {
    CAPTURE(between);
    const LayerCase each{.shape = pixels};
    const auto make = [=] { return blocks(between); };
    // The first block's backward pass is not fused.
    CHECK(calls_of(each, make) ==
          Calls{.norm_backward = between ? 4 : 2, .sums = 6, .apply = 6, .to_norm = 4});
    CHECK(calls_of(each, make, {&Calls::norm_backward}).norm_backward == 0);
    CHECK(calls_of(each, make, {&Calls::to_norm}) ==
          Calls{.norm_backward = 6, .sums = 6, .apply = 6});
  }
}

TEST_CASE("fused norm: fusion covers a block and its shortcut, but not recomputed blocks") {
  for (const bool recomputed : {false, true}) {
    CAPTURE(recomputed);
    CHECK(calls_of({.shape = pixels}, [=] { return two_bottlenecks(recomputed); }).to_norm ==
          (recomputed ? 4 : 6));
  }
}
