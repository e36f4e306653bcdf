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

/// All devices of this program are Fused, because another device type would compile the layers and kernels again.
struct Fused : Dev {
  explicit Fused(bool on = true) : all(on) {}
  static Fused& of(Dev& dev) { return static_cast<Fused&>(dev); }
  bool all;
  bool forward = all, backward = all, gradients = all, norm = all, norm_backward = all;
  bool convolution_sums = all, apply = all, to_norm = all;
  int forwards = 0, backwards = 0, both_gradients = 0, norms = 0, norm_gradients = 0;
  int sums = 0, applied = 0, to_norms = 0;
};

bool linear_gelu_fused_on(Dev& dev, ConstView<Dev> x, ConstView<Dev> w, ConstView<Dev> bias,
                          View<Dev> before, View<Dev> y) {
  if (!Fused::of(dev).forward) return false;
  ++Fused::of(dev).forwards;
  gemm(dev, x, w, before, {.transpose_b = true}, bias);
  activation_forward(dev, Activation::gelu, before, y);
  return true;
}
bool gelu_linear_backward_fused_on(Dev& dev, ConstView<Dev> dy, ConstView<Dev> w,
                                   ConstView<Dev> before, View<Dev> dbefore) {
  if (!Fused::of(dev).backward) return false;
  ++Fused::of(dev).backwards;
  gemm(dev, dy, w, dbefore);
  activation_backward(dev, Activation::gelu, before, dbefore, dbefore);
  return true;
}
bool linear_gradients_fused_on(Dev& dev, ConstView<Dev> dy, ConstView<Dev> x, View<Dev> dw,
                               View<Dev> dbias, double beta) {
  if (!Fused::of(dev).gradients) return false;
  ++Fused::of(dev).both_gradients;
  gemm(dev, dy, x, dw, {.transpose_a = true, .beta = beta});
  column_sums(dev, dy, dbias, beta);
  return true;
}

std::optional<detail::BatchNormResult<Dev>> batch_norm_fused_on(Dev& dev, ConstView<Dev> x,
                                                                ConstView<Dev> residual,
                                                                ConstView<Dev> gamma,
                                                                ConstView<Dev> beta, double epsilon,
                                                                bool relu) {
  if (!Fused::of(dev).norm || (!relu && !residual.empty())) return {};
  ++Fused::of(dev).norms;
  const auto rows = static_cast<double>(x.rows());
  const auto vector = [&] { return Tensor<Dev>(dev, gamma.dtype(), {x.columns()}); };
  detail::BatchNormResult<Dev> made{
      Tensor<Dev>(dev, x.dtype(), x.shape()), vector(), vector(), vector(), {}};
  detail::batch_norm_sums(dev, x, made.mean.mut());
  scale(dev, 1 / rows, made.mean.mut());
  detail::batch_norm_squared_deviations(dev, x, made.mean, made.squared_deviations.mut());
  auto variance = clone(dev, made.squared_deviations.view());
  scale(dev, 1 / rows, variance.mut());
  rsqrt(dev, variance.view(), epsilon, made.inv_std.mut());
  detail::batch_norm_apply(dev, x, {made.mean, made.inv_std, gamma, beta}, residual, relu,
                           made.y.mut());
  if (relu) made.signs = clone(dev, made.y.view());
  return made;
}
std::optional<detail::BatchNormResult<Dev>> batch_norm_fused_apply_on(
    Dev& dev, ConstView<Dev> x, const detail::BatchNormVectors<Dev>& vectors,
    ConstView<Dev> residual, bool relu) {
  if (!Fused::of(dev).apply || (!relu && !residual.empty())) return {};
  ++Fused::of(dev).applied;
  detail::BatchNormResult<Dev> made;
  made.y = Tensor<Dev>(dev, x.dtype(), x.shape());
  detail::batch_norm_apply(dev, x, vectors, residual, relu, made.y.mut());
  if (relu) made.signs = clone(dev, made.y.view());
  return made;
}
std::optional<Tensor<Dev>> conv2d_forward_with_sums_on(Dev& dev, ConstView<Dev> x, ConstView<Dev> w,
                                                       Conv2dGeometry geometry, View<Dev> y) {
  if (!Fused::of(dev).convolution_sums) return {};
  ++Fused::of(dev).sums;
  conv2d_forward(dev, x, w, geometry, y);
  Tensor<Dev> sums(dev, y.dtype(), {2, y.columns()});
  const auto zero = Tensor<Dev>::zeros(dev, y.dtype(), {y.columns()});
  detail::batch_norm_sums(dev, y, sums.mut().slice(0, 1));
  detail::batch_norm_squared_deviations(dev, y, zero, sums.mut().slice(1, 2));
  return sums;
}
std::optional<Tensor<Dev>> conv2d_backward_data_to_norm_on(
    Dev& dev, ConstView<Dev> dy, ConstView<Dev> w, Conv2dGeometry geometry, ConstView<Dev> onto,
    const detail::NormTrace<Dev>& norm, View<Dev> dx) {
  if (!Fused::of(dev).to_norm) return {};
  ++Fused::of(dev).to_norms;
  if (!onto.empty()) cast(dev, onto, dx);
  conv2d_backward_data(dev, dy, w, geometry, dx, onto.empty() ? 0 : 1);
  Tensor<Dev> sums(dev, dx.dtype(), {2, dx.columns()});
  const auto ones = Tensor<Dev>(dev, dx.dtype(), {dx.columns()});
  const detail::BatchNormVectors<Dev> vectors{norm.mean, norm.inv_std, ones, ones};
  // This device stores y itself as the signs.
  detail::batch_norm_residual_backward_sums(dev, dx, norm.signs, norm.x, vectors, dx,
                                            sums.mut().slice(0, 1), sums.mut().slice(1, 2));
  return sums;
}
std::optional<detail::BatchNormGradients<Dev>> batch_norm_fused_backward_on(
    Dev& dev, ConstView<Dev> dy, ConstView<Dev> x, const detail::BatchNormVectors<Dev>& vectors,
    ConstView<Dev> signs, bool residual) {
  if (!Fused::of(dev).norm_backward) return {};
  ++Fused::of(dev).norm_gradients;
  detail::BatchNormGradients<Dev> made{Tensor<Dev>(dev, x.dtype(), x.shape()),
                                       Tensor<Dev>(dev, x.dtype(), x.shape()),
                                       Tensor<Dev>(dev, vectors.mean.dtype(), {2, x.columns()})};
  const auto row = [&](int at) { return made.sums.mut().slice(at, at + 1); };
  if (signs.empty()) {
    cast(dev, dy, made.dresidual.mut());
    detail::batch_norm_backward_sums(dev, dy, x, vectors, false, row(0), row(1));
  } else {
    detail::batch_norm_residual_backward_sums(dev, dy, signs, x, vectors, made.dresidual.mut(),
                                              row(0), row(1));
  }
  detail::batch_norm_backward_apply(dev, made.dresidual.view(), x, vectors, false, row(0), row(1),
                                    static_cast<double>(x.rows()), made.dx.mut());
  if (!residual) made.dresidual = {};
  return made;
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
/// Checks that results with the fused functions equal those without, to the bit or, for `pixels`, nearly.
void check_like_pieces(Fused& fused, const Shape& shape, const auto& make,
                       bool deterministic = false,
                       StepContext::Mode mode = StepContext::Mode::train) {
  const double apart = shape == pixels ? 1e-13 : 0;
  Fused pieces(false);
  const LayerCase each{.shape = shape, .mode = mode, .deterministic = deterministic};
  const auto found = run_layer<Dev>(fused, make(), each);
  const auto right = run_layer<Dev>(pieces, make(), each);
  CHECK(distance(found.y, right.y) <= apart);
  CHECK(distance(found.dx, right.dx) <= std::max(apart, 1e-14));
  for (std::size_t at = 0; at < right.gradients.size(); ++at)  // including running statistics
    CHECK(distance(found.gradients[at], right.gradients[at]) <= std::max(apart, 1e-14));
}

}  // namespace

TEST_CASE("fused linear: a feed-forward pair calls the device once in each direction") {
  for (const bool deterministic : {false, true}) {
    Fused fused;
    check_like_pieces(fused, rows, pair_of_layers, deterministic);
    CHECK(fused.forwards == 2);
    CHECK(fused.backwards == 2);
    CHECK(fused.both_gradients == 2);  // all of layer 2; layer 1's bias is computed elsewhere
  }
}

TEST_CASE("fused linear: unfused operations are used if the device lacks either pass") {
  Fused fused;
  fused.forward = false;
  check_like_pieces(fused, rows, pair_of_layers);
  fused.forward = true;
  fused.backward = false;
  check_like_pieces(fused, rows, pair_of_layers);
  CHECK(fused.forwards == 2);
  CHECK(fused.backwards == 2);
}

TEST_CASE("fused linear: evaluation and recomputation call the same fused operations") {
  Fused fused;
  check_like_pieces(fused, rows, [] { return recompute<Dev>(pair_of_layers()); });
  CHECK(fused.forwards == 4);
  CHECK(fused.backwards == 2);
  check_like_pieces(fused, rows, pair_of_layers, false, StepContext::Mode::eval);
  CHECK(fused.forwards == 6);
}

TEST_CASE("fused linear: a layer with a bias gets both parameter gradients from one call") {
  for (const bool deterministic : {false, true}) {
    Fused fused;
    const auto check = [&](bool bias) {
      check_like_pieces(
          fused, rows, [=] { return linear(bias); }, deterministic);
    };
    check(true);
    CHECK(fused.both_gradients == 2);
    fused.gradients = false;
    check(true);
    fused.gradients = true;
    check(false);
    CHECK(fused.both_gradients == 2);
  }
}

TEST_CASE("fused norm: equals the unfused operations, with one call in each direction") {
  Fused fused;
  for (const bool relu : {false, true}) check_like_pieces(fused, image, [=] { return norm(relu); });
  CHECK(fused.norms == 4);
  CHECK(fused.norm_gradients == 4);
  check_like_pieces(fused, image, [] { return block(true); });
  CHECK(fused.norms == 6);
  CHECK(fused.norm_gradients == 6);
}

TEST_CASE("fused norm: unfused operations are used if the device lacks either pass") {
  Fused fused;
  fused.norm_backward = false;
  for (const bool relu : {false, true}) {
    check_like_pieces(fused, image, [=] { return norm(relu); });
    check_like_pieces(fused, image, [=] { return block(relu); });
  }
  CHECK(fused.norms == 6);  // a residual needs a ReLU
  // Without signs from the forward pass, the fused backward pass is not called.
  fused.norm_backward = true;
  check_like_pieces(fused, image, [] { return block(false); });
  CHECK(fused.norm_gradients == 0);
}

TEST_CASE("fused norm: a recomputed pass adds no statistics; evaluation calls nothing") {
  Fused fused;
  check_like_pieces(fused, image, [] { return recompute<Dev>(block(true)); });
  CHECK(fused.norms == 4);
  CHECK(fused.norm_gradients == 2);
  check_like_pieces(
      fused, image, [] { return block(true); }, false, StepContext::Mode::eval);
  CHECK(fused.norms == 4);
}

TEST_CASE("fused norm: a convolution's sums save the norm one pass over its input") {
  for (const bool deterministic : {false, true}) {
    Fused fused;
    for (const bool relu : {false, true})
      check_like_pieces(
          fused, pixels, [=] { return convolved(relu); }, deterministic);
    check_like_pieces(fused, pixels, convolved_block, deterministic);
    CHECK(fused.sums == 6);
    CHECK(fused.applied == 6);
    CHECK(fused.norms == 0);
    CHECK(fused.norm_gradients == 6);
  }
}

TEST_CASE("fused norm: without the sums, or a function for them, other paths are taken") {
  Fused fused;
  fused.apply = false;
  check_like_pieces(fused, pixels, convolved_block);
  CHECK(fused.sums == 2);
  CHECK(fused.norms == 0);
  CHECK(fused.norm_gradients == 0);
  fused.apply = true;
  fused.norm_backward = false;
  check_like_pieces(fused, pixels, convolved_block);
  CHECK(fused.applied == 2);
  fused.convolution_sums = false;
  check_like_pieces(fused, pixels, convolved_block);
  CHECK(fused.applied == 2);
  CHECK(fused.norms == 2);
}

TEST_CASE("fused norm: a recomputed pass takes the sums again; evaluation takes none") {
  Fused fused;
  check_like_pieces(fused, pixels, [] { return recompute<Dev>(convolved_block()); });
  CHECK(fused.sums == 4);
  check_like_pieces(fused, pixels, convolved_block, false, StepContext::Mode::eval);
  CHECK(fused.sums == 4);
  CHECK(fused.applied == 4);
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
    Fused fused;
    const auto make = [=] { return blocks(between); };
    check_like_pieces(fused, pixels, make);
    CHECK(fused.to_norms == 4);  // the first block's is not fused
    CHECK(fused.norm_gradients == (between ? 4 : 2));
    fused.norm_backward = false;
    check_like_pieces(fused, pixels, make);
    fused.norm_backward = true;
    fused.to_norm = false;
    fused.norm_gradients = 0;
    check_like_pieces(fused, pixels, make);
    CHECK(fused.norm_gradients == 6);
  }
}

TEST_CASE("fused norm: fusion covers a block and its shortcut, but not recomputed blocks") {
  for (const bool recomputed : {false, true}) {
    CAPTURE(recomputed);
    Fused fused;
    check_like_pieces(fused, pixels, [=] { return two_bottlenecks(recomputed); });
    CHECK(fused.to_norms == (recomputed ? 4 : 6));
  }
}
