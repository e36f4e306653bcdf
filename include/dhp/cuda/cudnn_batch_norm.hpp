// Fused batch norm on Cuda: y = ReLU(norm(x) + residual) in one kernel, with the signs of y as
// bits, and its gradient, which reads these bits instead of y. If cuDNN cannot, functions of
// dhp::cuda return false and write nothing. Hopper supports f32, bf16 and f16 with channels in
// multiples of 16 bytes. Statistics cover these rows only.
#pragma once

#include <dhp/cuda/batch_norm.hpp>
#include <dhp/cuda/cublas_problem.hpp>
#include <dhp/cuda/cudnn_norm.hpp>
#include <dhp/cuda/map.hpp>
#include <dhp/cuda/plan_cache.hpp>

namespace dhp::cuda {

/// Argument numbers.
struct NormUids {
  static constexpr std::int64_t x = 1, gamma = 2, beta = 3, mean = 4, inv_std = 5, y = 6,
                                residual = 7, signs = 8, dy = 9, dgamma = 10, dbeta = 11, dx = 12,
                                dresidual = 13;
};

/// Bytes for `count` sign bits.
[[nodiscard]] constexpr std::int64_t sign_bytes(std::int64_t count) { return (count + 7) / 8; }

struct NormExtents {
  DType type = DType::bf16;
  std::int64_t rows = 0, channels = 0;
  std::int64_t alignment = 16;

  [[nodiscard]] Dims image() const { return {rows, channels, 1, 1}; }
  [[nodiscard]] Dims channel() const { return {1, channels, 1, 1}; }
  [[nodiscard]] std::string text(const char* what) const {
    return concat(what, " ", type, " rows ", rows, " channels ", channels, " at ", alignment);
  }
};

[[nodiscard]] inline CudnnGraph norm_relu_graph(const NormExtents& extents, bool residual,
                                                float epsilon) {
  using Uids = NormUids;
  CudnnGraph graph;
  const auto strides = nhwc_strides(extents.image());
  const auto image = [&](std::int64_t uid, cudnnDataType_t type) {
    return graph.argument(uid, type, extents.image(), strides, extents.alignment);
  };
  const auto channel = [&](std::int64_t uid) {
    return graph.argument(uid, CUDNN_DATA_FLOAT, extents.channel(),
                          nhwc_strides(extents.channel()));
  };
  const auto type = cudnn_type(extents.type);
  const auto x = image(Uids::x, type);
  const auto y = image(Uids::y, type);
  auto sum = graph.inner_like(x);
  batch_norm(graph, {.x = x,
                     .scale = channel(Uids::gamma),
                     .shift = channel(Uids::beta),
                     .epsilon = graph.scalar(epsilon),
                     .mean = channel(Uids::mean),
                     .inv_std = channel(Uids::inv_std),
                     .y = sum});
  if (residual) {
    const auto normed = sum;
    sum = graph.inner_like(x);
    graph.pointwise(CUDNN_POINTWISE_ADD, normed, image(Uids::residual, type), sum);
  }
  graph.pointwise(CUDNN_POINTWISE_RELU_FWD, sum, {}, y);
  graph.pointwise(CUDNN_POINTWISE_CMP_GT, y, graph.scalar(0),
                  image(Uids::signs, CUDNN_DATA_BOOLEAN));
  return graph;
}

/// residual: also writes its gradient, dy masked by y > 0.
[[nodiscard]] inline CudnnGraph norm_relu_backward_graph(const NormExtents& extents,
                                                         bool residual) {
  using Uids = NormUids;
  CudnnGraph graph;
  const auto strides = nhwc_strides(extents.image());
  const auto image = [&](std::int64_t uid, cudnnDataType_t type) {
    return graph.argument(uid, type, extents.image(), strides, extents.alignment);
  };
  const auto channel = [&](std::int64_t uid) {
    return graph.argument(uid, CUDNN_DATA_FLOAT, extents.channel(),
                          nhwc_strides(extents.channel()));
  };
  const auto type = cudnn_type(extents.type);
  const auto dy = image(Uids::dy, type);
  const auto masked = residual ? image(Uids::dresidual, type) : graph.inner_like(dy, type);
  graph.pointwise(CUDNN_POINTWISE_MUL, dy, image(Uids::signs, CUDNN_DATA_BOOLEAN), masked);
  batch_norm_backward(graph, {.dy = masked,
                              .x = image(Uids::x, type),
                              .scale = channel(Uids::gamma),
                              .mean = channel(Uids::mean),
                              .inv_std = channel(Uids::inv_std),
                              .dscale = channel(Uids::dgamma),
                              .dshift = channel(Uids::dbeta),
                              .dx = image(Uids::dx, type)});
  return graph;
}

/// The extents of x [.., C], if all addresses are 16-byte aligned.
template <class Dev>
[[nodiscard]] NormExtents norm_extents(ConstView<Dev> x) {
  return {x.dtype(), x.rows(), x.columns(), std::min<std::int64_t>(alignment_of(x.bytes()), 16)};
}
template <class Dev>
[[nodiscard]] CudnnRules norm_rules(Dev& dev) {
  return {.deterministic = dev.options().deterministic};
}

/// Whether the two functions below support this x.
template <class Dev>
[[nodiscard]] bool norm_relu_supported(Dev& dev, ConstView<Dev> x, bool residual) {
  if (x.dtype() == DType::f64 || x.count() == 0) return false;
  const auto extents = norm_extents(x);
  auto& plans = dev.template cached<CudnnPlans>();
  return plans.can(concat(extents.text("norm_relu"), residual ? " residual" : "", " query"),
                   norm_rules(dev), [&] { return norm_relu_graph(extents, residual, 1e-5f); }) &&
         plans.can(concat(extents.text("norm_relu_backward"), residual ? " residual" : ""),
                   norm_rules(dev), [&] { return norm_relu_backward_graph(extents, residual); });
}

/// x, y and residual [.., C] of one type; residual may be empty. gamma, beta, mean and inv_std f32
/// [C]; writes mean and inv_std. signs u8 [sign_bytes(count)].
template <class Dev>
struct NormRelu {
  ConstView<Dev> x, residual, gamma, beta;
  double epsilon;
  View<Dev> mean, inv_std, y, signs;
};
template <class Dev>
[[nodiscard]] bool norm_relu(Dev& dev, const NormRelu<Dev>& t) {
  check(t.signs.count() >= sign_bytes(t.x.count()) && t.signs.dtype() == DType::u8,
        "norm_relu: signs of ", t.x.shape(), " are u8 [", sign_bytes(t.x.count()), "], got ",
        t.signs.dtype(), " ", t.signs.shape());
  if (t.x.dtype() == DType::f64 || t.x.count() == 0) return false;
  using Uids = NormUids;
  const auto extents = norm_extents(t.x);
  const auto epsilon = static_cast<float>(t.epsilon);
  const bool residual = !t.residual.empty();
  CudnnArguments arguments;
  arguments.add(Uids::x, t.x.bytes()).add(Uids::gamma, t.gamma.bytes());
  arguments.add(Uids::beta, t.beta.bytes()).add(Uids::mean, t.mean.bytes());
  arguments.add(Uids::inv_std, t.inv_std.bytes()).add(Uids::y, t.y.bytes());
  arguments.add(Uids::signs, t.signs.bytes());
  if (residual) arguments.add(Uids::residual, t.residual.bytes());
  return dev.template cached<CudnnPlans>().run(
      dev, concat(extents.text("norm_relu"), residual ? " residual" : "", " epsilon ", epsilon),
      norm_rules(dev), arguments, [&] { return norm_relu_graph(extents, residual, epsilon); });
}

/// Writes dx and, unless empty, dresidual, both like x; dgamma and dbeta f32 [C].
template <class Dev>
struct NormReluGradient {
  ConstView<Dev> dy, x, signs, gamma, mean, inv_std;
  View<Dev> dx, dresidual, dgamma, dbeta;
};
template <class Dev>
[[nodiscard]] bool norm_relu_backward(Dev& dev, const NormReluGradient<Dev>& t) {
  if (t.x.dtype() == DType::f64 || t.x.count() == 0) return false;
  using Uids = NormUids;
  const auto extents = norm_extents(t.x);
  const bool residual = !t.dresidual.empty();
  CudnnArguments arguments;
  arguments.add(Uids::dy, t.dy.bytes()).add(Uids::x, t.x.bytes());
  arguments.add(Uids::signs, t.signs.bytes()).add(Uids::gamma, t.gamma.bytes());
  arguments.add(Uids::mean, t.mean.bytes()).add(Uids::inv_std, t.inv_std.bytes());
  arguments.add(Uids::dx, t.dx.bytes()).add(Uids::dgamma, t.dgamma.bytes());
  arguments.add(Uids::dbeta, t.dbeta.bytes());
  if (residual) arguments.add(Uids::dresidual, t.dresidual.bytes());
  return dev.template cached<CudnnPlans>().run(
      dev, concat(extents.text("norm_relu_backward"), residual ? " residual" : ""), norm_rules(dev),
      arguments, [&] { return norm_relu_backward_graph(extents, residual); });
}

/// The sum of squared deviations of `rows` values, from 1 / sqrt(variance + epsilon).
struct SquaredDeviations {
  double epsilon, rows;
  constexpr float operator()(float inv_std) const {
    const double root = static_cast<double>(inv_std);
    const double variance = 1 / (root * root) - epsilon;
    return static_cast<float>(variance < 0 ? 0 : variance * rows);  // rounding may make it negative
  }
};

}  // namespace dhp::cuda

namespace dhp {

template <KernelDevice Dev>
  requires(std::same_as<Dev, Cuda>)
std::optional<BatchNormResult<Dev>> batch_norm_fused_on(Dev& dev, ConstView<Dev> x,
                                                        ConstView<Dev> residual,
                                                        ConstView<Dev> gamma, ConstView<Dev> beta,
                                                        double epsilon, bool relu) {
  if (!relu || x.dtype() == DType::f64 || x.count() == 0) return {};
  const auto per_column = [&] { return Tensor<Dev>(dev, DType::f32, {x.columns()}); };
  BatchNormResult<Dev> made{Tensor<Dev>(dev, x.dtype(), x.shape()), per_column(), per_column(),
                            per_column(),
                            Tensor<Dev>(dev, DType::u8, {cuda::sign_bytes(x.count())})};
  if (!cuda::norm_relu(dev,
                       cuda::NormRelu<Dev>{x, residual, gamma, beta, epsilon, made.mean.mut(),
                                           made.inv_std.mut(), made.y.mut(), made.signs.mut()}))
    return {};
  cuda::map(dev, x.columns(), cuda::SquaredDeviations{epsilon, static_cast<double>(x.rows())},
            made.squared_deviations.mut().template data<float>(),
            made.inv_std.view().template data<float>());
  return made;
}

template <KernelDevice Dev>
  requires(std::same_as<Dev, Cuda>)
std::optional<BatchNormGradients<Dev>> batch_norm_fused_backward_on(
    Dev& dev, ConstView<Dev> dy, ConstView<Dev> x, const BatchNormVectors<Dev>& vectors,
    ConstView<Dev> signs, bool residual) {
  const auto like_x = [&] { return Tensor<Dev>(dev, x.dtype(), x.shape()); };
  BatchNormGradients<Dev> made{like_x(), residual ? like_x() : Tensor<Dev>(),
                               Tensor<Dev>(dev, DType::f32, {2, x.columns()})};
  const auto dbeta = made.sums.mut().slice(0, 1), dgamma = made.sums.mut().slice(1, 2);
  const auto dresidual = residual ? made.dresidual.mut() : View<Dev>();
  if (!cuda::norm_relu_backward(dev, cuda::NormReluGradient<Dev>{
                                         dy, x, signs, vectors.gamma, vectors.mean, vectors.inv_std,
                                         made.dx.mut(), dresidual, dgamma, dbeta}))
    return {};
  return made;
}

}  // namespace dhp
