// Attention as cuDNN graphs, forward and backward, in the operation order that its fused kernels
// match (Dao et al. 2022; cuDNN's graph API, "fused flash attention"; the places of mask and scale
// follow the open cudnn_frontend). Dropout is a 0/1 mask, because cuDNN's generator uses its own
// numbering.
#pragma once

#include <dhp/cuda/cudnn_attention_tensors.hpp>

#include <cmath>

namespace dhp::cuda {

[[nodiscard]] inline float attention_scale(const AttentionProblem& problem) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(problem.head_size)));
}

/// The scale of kept probabilities.
[[nodiscard]] inline float kept_scale(const AttentionProblem& problem) {
  return static_cast<float>(1.0 / (1.0 - problem.dropout));
}

/// q, k, v, with dropout the mask -> y, statistics
[[nodiscard]] inline CudnnGraph attention_forward_graph(const AttentionProblem& problem) {
  using Uids = AttentionUids;
  CudnnGraph graph;
  const AttentionTensors make(graph, problem);
  const auto q = make.rows(Uids::q);
  const auto k = make.transposed_rows(Uids::k);
  const auto v = make.rows(Uids::v);
  const auto y = make.rows(Uids::y);
  const auto statistics = make.statistics(Uids::statistics);
  const auto scores = make.masked_scores(q, k, graph.scalar(attention_scale(problem)), true);
  const auto most = make.column();
  graph.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, most);
  const auto shifted = make.scores();
  graph.pointwise(CUDNN_POINTWISE_SUB, scores, most, shifted);
  const auto powers = make.scores();
  graph.pointwise(CUDNN_POINTWISE_EXP, shifted, {}, powers);
  const auto sum = make.column();
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, powers, sum);
  const auto logarithm = make.column();
  graph.pointwise(CUDNN_POINTWISE_LOG, sum, {}, logarithm);
  graph.pointwise(CUDNN_POINTWISE_ADD, most, logarithm, statistics);
  const bool drops = problem.dropout > 0;
  auto weights = make.scores(drops ? CUDNN_DATA_FLOAT : problem.type);
  graph.pointwise(CUDNN_POINTWISE_DIV, powers, sum, weights);
  if (drops) {
    const auto scaled = make.scores();
    graph.pointwise(CUDNN_POINTWISE_MUL, weights, graph.scalar(kept_scale(problem)), scaled);
    weights = make.scores(problem.type);
    graph.pointwise(CUDNN_POINTWISE_MUL, scaled, make.mask(), weights);
  }
  graph.multiply(weights, v, y, {.rows = make.query_lengths(), .depth = make.key_lengths()});
  return graph;
}

/// dy, q, k, v, y, statistics, with dropout the mask -> dq, dk, dv. inner_products is scratch: f32
/// [samples, heads, length, 1]. With dq_sums, dq is summed in f32 scratch in an order that depends
/// on timing: [rows of q, heads * head_size] if head_size is a multiple of 16, else [samples,
/// heads, length, head_size]. Without it the order is fixed, but cuDNN's workspace grows with the
/// square of the length.
[[nodiscard]] inline CudnnGraph attention_backward_graph(const AttentionProblem& problem,
                                                         bool dq_sums) {
  using Uids = AttentionUids;
  CudnnGraph graph;
  const AttentionTensors make(graph, problem);
  const auto q = make.rows(Uids::q);
  const auto k = make.transposed_rows(Uids::k);
  const auto v = make.transposed_rows(Uids::v);
  const auto y = make.rows(Uids::y);
  const auto dy = make.rows(Uids::dy);
  const auto statistics = make.statistics(Uids::statistics);
  const auto dq = make.rows(Uids::dq);
  const auto dk = make.rows(Uids::dk);
  const auto dv = make.rows(Uids::dv);
  const auto inner_products = make.statistics(Uids::inner_products);
  const auto scale = graph.scalar(attention_scale(problem));

  // With mask m and kept = 1 / (1 - dropout): y = (p m kept) v, so dv = (p m kept)^T dy and ds = p
  // (m kept dy v^T - dy . y) scale = p (m dy v^T - dy . y / kept) kept scale.
  std::optional<CudnnTensor> mask, kept;
  if (problem.dropout > 0) {
    mask = make.mask();
    kept = graph.scalar(kept_scale(problem));
  }
  // x times the factor, with dropout only.
  const auto times = [&](const CudnnTensor& x, const std::optional<CudnnTensor>& factor) {
    if (!factor) return x;
    const auto product = make.scores();
    graph.pointwise(CUDNN_POINTWISE_MUL, x, factor, product);
    return product;
  };

  // dy . y / kept per query
  const auto products = graph.inner(dy.extents, dense_strides(dy.extents));
  graph.pointwise(CUDNN_POINTWISE_MUL, dy, y, products);
  const auto sums = make.column();
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, products, sums);
  graph.pointwise(CUDNN_POINTWISE_MUL, sums,
                  graph.scalar(static_cast<float>(1.0 - problem.dropout)), inner_products);

  // p again; dv
  const auto scores = make.masked_scores(q, k, scale, false);
  const auto shifted = make.scores();
  graph.pointwise(CUDNN_POINTWISE_SUB, scores, statistics, shifted);
  const auto probabilities = make.scores();
  graph.pointwise(CUDNN_POINTWISE_EXP, shifted, {}, probabilities);
  const auto [samples, heads, rows, columns] = make.score_extents();
  const Dims turned_extents{samples, heads, columns, rows};
  const Dims turned_strides{heads * rows * columns, rows * columns, 1, columns};
  const auto turned = graph.inner(turned_extents, turned_strides, problem.type);
  graph.reshape(times(times(probabilities, mask), kept), turned);
  const CudnnLengths key_rows{.rows = make.key_lengths(), .depth = make.query_lengths()};
  graph.multiply(turned, dy, dv, key_rows);

  // ds; dk = ds^T q
  const auto dp = make.scores();
  graph.multiply(dy, v, dp, {.rows = make.query_lengths(), .columns = make.key_lengths()});
  const auto centered = make.scores();
  graph.pointwise(CUDNN_POINTWISE_SUB, times(dp, mask), inner_products, centered);
  const auto weighted = make.scores();
  graph.pointwise(CUDNN_POINTWISE_MUL, centered, probabilities, weighted);
  const auto ds = make.scores();
  graph.pointwise(CUDNN_POINTWISE_MUL, times(weighted, kept), scale, ds);
  const auto turned_ds = graph.inner(turned_extents, turned_strides, problem.type);
  graph.reshape(ds, turned_ds);
  graph.multiply(turned_ds, q, dk, key_rows);

  // dq = ds k
  const auto plain_k = graph.inner(q.extents, make.row_strides(), problem.type, make.offsets());
  graph.reshape(k, plain_k);
  const CudnnLengths query_rows{.rows = make.query_lengths(), .depth = make.key_lengths()};
  if (!dq_sums) {
    graph.multiply(ds, plain_k, dq, query_rows);
    return graph;
  }
  const auto sum =
      problem.head_size % 16 == 0
          ? graph.argument(Uids::dq_sums, CUDNN_DATA_FLOAT, q.extents, make.row_strides(), 16,
                           make.offsets())
          : graph.argument(Uids::dq_sums, CUDNN_DATA_FLOAT, q.extents, dense_strides(q.extents));
  graph.multiply(ds, plain_k, sum, query_rows);
  graph.pointwise(CUDNN_POINTWISE_IDENTITY, sum, {}, dq);
  return graph;
}

}  // namespace dhp::cuda
