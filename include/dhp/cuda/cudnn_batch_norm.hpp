// Fused batch norm on Cuda: one kernel computes y = ReLU(norm(x) + residual) and the signs of y as bits, or norm(x)
// alone; another computes the gradient and reads the bits instead of y. Hopper supports f32, bf16 and f16 with channels
// in multiples of 16 bytes. Statistics cover only the rows of x. If they are known beforehand, x is read once less.
#pragma once

#include <dhp/cuda/batch_norm.hpp>
#include <dhp/cuda/cublas_problem.hpp>
#include <dhp/cuda/map.hpp>
#include <dhp/cuda/plan_cache.hpp>

namespace dhp::detail::cuda {

/// Argument numbers of the graphs.
struct NormUids {
  static constexpr std::int64_t x = 1, gamma = 2, beta = 3, mean = 4, inv_std = 5, y = 6,
                                residual = 7, signs = 8, dy = 9, dgamma = 10, dbeta = 11, dx = 12,
                                dresidual = 13;
};

/// Returns the bytes for `count` sign bits.
[[nodiscard]] constexpr std::int64_t sign_bytes(std::int64_t count) { return (count + 7) / 8; }

struct NormExtents {
  DType type = DType::bf16;
  std::int64_t rows = 0, channels = 0;
  std::int64_t alignment = 16;

  [[nodiscard]] std::string text(const char* what) const {
    return concat(what, " ", type, " rows ", rows, " channels ", channels, " at ", alignment);
  }
};

/// Adds tensors like x and per-channel tensors to a graph.
struct NormTensors {
  CudnnGraph& graph;
  NormExtents extents;

  [[nodiscard]] CudnnTensor image(std::int64_t uid) const {
    return image(uid, cudnn_type(extents.type));
  }
  [[nodiscard]] CudnnTensor image(std::int64_t uid, cudnnDataType_t type) const {
    return graph.image(uid, type, {extents.rows, extents.channels, 1, 1}, extents.alignment);
  }
  /// Adds a per-channel vector, f32 [1, C, 1, 1].
  [[nodiscard]] CudnnTensor vector(std::int64_t uid) const {
    return graph.image(uid, CUDNN_DATA_FLOAT, {1, extents.channels, 1, 1}, extents.alignment);
  }
  /// Adds a per-channel vector and returns its descriptor.
  [[nodiscard]] const CudnnDescriptor& channel(std::int64_t uid) const {
    return graph.raw(vector(uid));
  }
};

/// The steps after the normalization.
struct NormTail {
  bool residual = false, relu = true;  ///< a residual needs a ReLU
  [[nodiscard]] std::string text() const {
    return concat(relu ? " relu" : "", residual ? " residual" : "");
  }
};

/// Makes the graph of y = ReLU(norm(x) + residual) and the signs of y. With an epsilon it also computes the statistics;
/// otherwise they are known.
[[nodiscard]] inline CudnnGraph norm_graph(const NormExtents& extents, NormTail tail,
                                           std::optional<float> epsilon) {
  using Uids = NormUids;
  CudnnGraph graph;
  const NormTensors make{graph, extents};
  const auto x = make.image(Uids::x), y = make.image(Uids::y);
  auto sum = tail.relu ? graph.inner_like(x) : y;
  if (epsilon) {
    graph.add(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR)
        .set(CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_BATCH_NORM)
        .set(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_NORM_FWD_TRAINING)
        .set(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, graph.raw(x))
        .set(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, make.channel(Uids::gamma))
        .set(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, make.channel(Uids::beta))
        .set(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, graph.raw(graph.scalar(*epsilon)))
        .set(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, make.channel(Uids::mean))
        .set(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, make.channel(Uids::inv_std))
        .set(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, graph.raw(sum))
        .finalize("a batch norm of cuDNN");
  } else {
    auto value = graph.pointwise(CUDNN_POINTWISE_SUB, x, make.vector(Uids::mean));
    value = graph.pointwise(CUDNN_POINTWISE_MUL, value, make.vector(Uids::inv_std));
    value = graph.pointwise(CUDNN_POINTWISE_MUL, value, make.vector(Uids::gamma));
    graph.pointwise(CUDNN_POINTWISE_ADD, value, make.vector(Uids::beta), sum);
  }
  if (!tail.relu) return graph;
  if (tail.residual) sum = graph.pointwise(CUDNN_POINTWISE_ADD, sum, make.image(Uids::residual));
  graph.pointwise(CUDNN_POINTWISE_RELU_FWD, sum, {}, y);
  graph.pointwise(CUDNN_POINTWISE_CMP_GT, y, graph.scalar(0),
                  make.image(Uids::signs, CUDNN_DATA_BOOLEAN));
  return graph;
}

/// Makes the graph of the gradients. A residual's gradient is dy masked by y > 0.
[[nodiscard]] inline CudnnGraph norm_backward_graph(const NormExtents& extents, NormTail tail) {
  using Uids = NormUids;
  CudnnGraph graph;
  const NormTensors make{graph, extents};
  const auto dy = make.image(Uids::dy);
  const auto masked = !tail.relu      ? dy
                      : tail.residual ? make.image(Uids::dresidual)
                                      : graph.inner_like(dy, cudnn_type(extents.type));
  if (tail.relu)
    graph.pointwise(CUDNN_POINTWISE_MUL, dy, make.image(Uids::signs, CUDNN_DATA_BOOLEAN), masked);
  graph.add(CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_BATCH_NORM)
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, graph.raw(make.image(Uids::x)))
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, graph.raw(masked))
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, make.channel(Uids::mean))
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, make.channel(Uids::inv_std))
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, make.channel(Uids::gamma))
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, make.channel(Uids::dgamma))
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, make.channel(Uids::dbeta))
      .set(CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, graph.raw(make.image(Uids::dx)))
      .finalize("the gradient of a batch norm by cuDNN");
  return graph;
}

/// Runs graph_of(extents of x and the smallest alignment of all arguments); returns false if cuDNN cannot.
[[nodiscard]] bool run_norm(Cuda& dev, const char* name, ConstView<Cuda> x, const std::string& tail,
                            const CudnnArguments& arguments, const auto& graph_of) {
  const NormExtents extents{x.dtype(), x.rows(), x.columns(), arguments.alignment()};
  return dev.cached<CudnnPlans>().run(dev, extents.text(name) + tail,
                                      {.deterministic = dev.options().deterministic}, arguments,
                                      [&] { return graph_of(extents); });
}

/// Sets y and the signs of `made`, with an epsilon also the statistics in `vectors`. Returns false if cuDNN cannot; a
/// residual without a ReLU cannot be fused.
template <class Dev>
[[nodiscard]] bool run_norm_forward(Dev& dev, ConstView<Dev> x, ConstView<Dev> residual,
                                    const BatchNormVectors<Dev>& vectors,
                                    std::optional<float> epsilon, bool relu,
                                    BatchNormResult<Dev>& result) {
  const NormTail tail{!residual.empty(), relu};
  if (x.dtype() == DType::f64 || x.count() == 0 || (tail.residual && !relu)) return false;
  result.y = Tensor<Dev>(dev, x.dtype(), x.shape());
  using Uids = NormUids;
  CudnnArguments arguments;
  arguments.add(Uids::x, x.bytes()).add(Uids::y, result.y.view().bytes());
  arguments.add(Uids::mean, vectors.mean.bytes()).add(Uids::inv_std, vectors.inv_std.bytes());
  arguments.add(Uids::gamma, vectors.gamma.bytes()).add(Uids::beta, vectors.beta.bytes());
  if (relu) {
    result.signs = Tensor<Dev>(dev, DType::u8, {sign_bytes(x.count())});
    arguments.add(Uids::signs, result.signs.view().bytes());
  }
  if (tail.residual) arguments.add(Uids::residual, residual.bytes());
  return run_norm(dev, epsilon ? "norm" : "norm_apply", x,
                  tail.text() + (epsilon ? concat(" epsilon ", *epsilon) : ""), arguments,
                  [&](const NormExtents& extents) { return norm_graph(extents, tail, epsilon); });
}

}  // namespace dhp::detail::cuda

namespace dhp::detail {

template <CudaItself Dev>
std::optional<BatchNormResult<Dev>> batch_norm_fused_on(Dev& dev, ConstView<Dev> x,
                                                        ConstView<Dev> residual,
                                                        ConstView<Dev> gamma, ConstView<Dev> beta,
                                                        double epsilon, bool relu) {
  const auto per_column = [&] { return Tensor<Dev>(dev, DType::f32, {x.columns()}); };
  BatchNormResult<Dev> result{{}, per_column(), per_column(), per_column(), {}};
  if (!cuda::run_norm_forward<Dev>(dev, x, residual, {result.mean, result.inv_std, gamma, beta},
                                   static_cast<float>(epsilon), relu, result))
    return {};
  cuda::map(dev, x.columns(), cuda::SquaredDeviations{epsilon, static_cast<double>(x.rows())},
            result.squared_deviations.mut().template data<float>(),
            result.inv_std.view().template data<float>());
  return result;
}

template <CudaItself Dev>
std::optional<BatchNormResult<Dev>> batch_norm_fused_apply_on(Dev& dev, ConstView<Dev> x,
                                                              const BatchNormVectors<Dev>& vectors,
                                                              ConstView<Dev> residual, bool relu) {
  BatchNormResult<Dev> result;
  if (!cuda::run_norm_forward<Dev>(dev, x, residual, vectors, {}, relu, result)) return {};
  return result;
}

template <CudaItself Dev>
std::optional<BatchNormGradients<Dev>> batch_norm_fused_backward_on(
    Dev& dev, ConstView<Dev> dy, ConstView<Dev> x, const BatchNormVectors<Dev>& vectors,
    ConstView<Dev> signs, bool residual) {
  if (x.dtype() == DType::f64 || x.count() == 0) return {};
  const auto like_x = [&] { return Tensor<Dev>(dev, x.dtype(), x.shape()); };
  BatchNormGradients<Dev> result{like_x(), residual ? like_x() : Tensor<Dev>(),
                                 Tensor<Dev>(dev, DType::f32, {2, x.columns()})};
  using Uids = cuda::NormUids;
  cuda::CudnnArguments arguments;
  arguments.add(Uids::dy, dy.bytes()).add(Uids::x, x.bytes());
  const cuda::NormTail tail{residual, !signs.empty()};
  if (tail.relu) arguments.add(Uids::signs, signs.bytes());
  arguments.add(Uids::gamma, vectors.gamma.bytes()).add(Uids::mean, vectors.mean.bytes());
  arguments.add(Uids::inv_std, vectors.inv_std.bytes()).add(Uids::dx, result.dx.mut().bytes());
  arguments.add(Uids::dbeta, result.sums.mut().slice(0, 1).bytes());
  arguments.add(Uids::dgamma, result.sums.mut().slice(1, 2).bytes());
  if (residual) arguments.add(Uids::dresidual, result.dresidual.mut().bytes());
  const auto graph = [&](const cuda::NormExtents& extents) {
    return cuda::norm_backward_graph(extents, tail);
  };
  if (!cuda::run_norm(dev, "norm_backward", x, tail.text(), arguments, graph)) return {};
  return result;
}

}  // namespace dhp::detail
