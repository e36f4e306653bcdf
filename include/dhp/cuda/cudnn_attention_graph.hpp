// Attention as a graph of cuDNN's operations, forward and backward, in the order in which its fused kernels know it
// (Dao et al. 2022; cuDNN's graph API, "fused flash attention"). Samples lie ragged in the rows, each with a
// length: a packed batch and a padded one are the same graph.
#pragma once

#include <dhp/cuda/cudnn_graph.hpp>

#include <cmath>
#include <limits>

namespace dhp::cuda {

/// Extents of one graph; samples and length may be more than there are: those beyond have length 0.
struct AttentionExtents {
  cudnnDataType_t type = CUDNN_DATA_BFLOAT16;
  std::int64_t samples = 1;
  std::int64_t heads = 1;
  std::int64_t length = 1;
  std::int64_t head_size = 64;
  friend bool operator==(const AttentionExtents&, const AttentionExtents&) = default;
};

/// Numbers of the arguments. offsets: i64 [samples + 1], in elements; lengths: i32 [samples], twice because
/// queries and keys could differ; statistics, the logarithms of the sums: f32 [samples, heads, length, 1].
struct AttentionUids {
  static constexpr std::int64_t q = 1, k = 2, v = 3, y = 4, statistics = 5, offsets = 6,
                                query_lengths = 7, key_lengths = 8, dy = 9, dq = 10, dk = 11,
                                dv = 12, inner_products = 13, dq_sums = 14;
};

/// Tensors that both directions have.
class AttentionTensors {
 public:
  AttentionTensors(CudnnGraph& graph, const AttentionExtents& extents)
      : graph_(graph),
        extents_(extents),
        offsets_(graph.argument(AttentionUids::offsets, CUDNN_DATA_INT64,
                                {extents.samples + 1, 1, 1, 1}, {1, 1, 1, 1})),
        query_lengths_(lengths(AttentionUids::query_lengths)),
        key_lengths_(lengths(AttentionUids::key_lengths)) {}

  /// [samples, heads, length, head_size] of rows of heads * head_size.
  [[nodiscard]] CudnnTensor rows(std::int64_t uid) const {
    const auto& e = extents_;
    return graph_.argument(uid, e.type, {e.samples, e.heads, e.length, e.head_size}, row_strides(),
                           16, offsets_);
  }
  /// The same seen as [samples, heads, head_size, length].
  [[nodiscard]] CudnnTensor transposed_rows(std::int64_t uid) const {
    const auto& e = extents_;
    const auto [sample, head, row, column] = row_strides();
    return graph_.argument(uid, e.type, {e.samples, e.heads, e.head_size, e.length},
                           {sample, head, column, row}, 16, offsets_);
  }
  [[nodiscard]] CudnnTensor statistics(std::int64_t uid) const {
    return graph_.argument(uid, CUDNN_DATA_FLOAT, column_extents(),
                           dense_strides(column_extents()));
  }
  [[nodiscard]] Dims score_extents() const {
    return {extents_.samples, extents_.heads, extents_.length, extents_.length};
  }
  [[nodiscard]] Dims column_extents() const {
    return {extents_.samples, extents_.heads, extents_.length, 1};
  }
  [[nodiscard]] CudnnTensor scores(cudnnDataType_t type = CUDNN_DATA_FLOAT) const {
    return graph_.inner(score_extents(), dense_strides(score_extents()), type);
  }
  [[nodiscard]] CudnnTensor column() const {
    return graph_.inner(column_extents(), dense_strides(column_extents()));
  }
  [[nodiscard]] Dims row_strides() const {
    const auto& e = extents_;
    return {e.length * e.heads * e.head_size, e.head_size, e.heads * e.head_size, 1};
  }
  [[nodiscard]] const CudnnTensor& offsets() const { return offsets_; }
  [[nodiscard]] const CudnnTensor& query_lengths() const { return query_lengths_; }
  [[nodiscard]] const CudnnTensor& key_lengths() const { return key_lengths_; }

  /// q k^T / sqrt(head_size), minus infinity where the query or the key is padding.
  [[nodiscard]] CudnnTensor masked_scores(const CudnnTensor& q, const CudnnTensor& transposed_k,
                                          const CudnnTensor& scale, bool padding) const {
    const auto product = scores();
    graph_.multiply(q, transposed_k, product, {.rows = query_lengths_, .columns = key_lengths_},
                    padding);
    const auto scaled = scores();
    graph_.pointwise(CUDNN_POINTWISE_MUL, product, scale, scaled);
    const auto is_query = before(scaled, 2, query_lengths_);
    const auto is_key = before(scaled, 3, key_lengths_);
    const auto both = scores(CUDNN_DATA_BOOLEAN);
    graph_.pointwise(CUDNN_POINTWISE_LOGICAL_AND, is_query, is_key, both, CUDNN_DATA_BOOLEAN);
    const auto masked = scores();
    const auto never = graph_.scalar(-std::numeric_limits<float>::infinity());
    graph_.pointwise(CUDNN_POINTWISE_BINARY_SELECT, scaled, never, masked, CUDNN_DATA_FLOAT, both);
    return masked;
  }

 private:
  [[nodiscard]] CudnnTensor lengths(std::int64_t uid) const {
    return graph_.argument(uid, CUDNN_DATA_INT32, {extents_.samples, 1, 1, 1}, {1, 1, 1, 1});
  }
  /// Where the index along `axis` is before the length.
  [[nodiscard]] CudnnTensor before(const CudnnTensor& like, std::int64_t axis,
                                   const CudnnTensor& length) const {
    const auto index = scores(CUDNN_DATA_INT32);
    graph_.pointwise(CUDNN_POINTWISE_GEN_INDEX, like, {}, index, CUDNN_DATA_INT32, {}, axis);
    const auto is_before = scores(CUDNN_DATA_BOOLEAN);
    graph_.pointwise(CUDNN_POINTWISE_CMP_LT, index, length, is_before, CUDNN_DATA_BOOLEAN);
    return is_before;
  }

  CudnnGraph& graph_;
  AttentionExtents extents_;
  CudnnTensor offsets_, query_lengths_, key_lengths_;
};

[[nodiscard]] inline float attention_scale(const AttentionExtents& extents) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(extents.head_size)));
}

/// q, k, v -> y, statistics
[[nodiscard]] inline CudnnGraph attention_forward_graph(const AttentionExtents& extents) {
  using Uids = AttentionUids;
  CudnnGraph graph;
  const AttentionTensors make(graph, extents);
  const auto q = make.rows(Uids::q);
  const auto k = make.transposed_rows(Uids::k);
  const auto v = make.rows(Uids::v);
  const auto y = make.rows(Uids::y);
  const auto statistics = make.statistics(Uids::statistics);
  const auto scores = make.masked_scores(q, k, graph.scalar(attention_scale(extents)), true);
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
  const auto probabilities = make.scores(extents.type);
  graph.pointwise(CUDNN_POINTWISE_DIV, powers, sum, probabilities);
  graph.multiply(probabilities, v, y, {.rows = make.query_lengths(), .depth = make.key_lengths()});
  return graph;
}

/// dy, q, k, v, y, statistics -> dq, dk, dv; inner_products is scratch, f32 [samples, heads, length, 1].
/// dq_sums: dq is summed in scratch of f32, [rows of q, heads * head_size] where head_size is a multiple of 16, else
/// [samples, heads, length, head_size], in an order that depends on timing; without it the order is fixed,
/// and cuDNN's own scratch grows with the square of the length.
[[nodiscard]] inline CudnnGraph attention_backward_graph(const AttentionExtents& extents,
                                                         bool dq_sums) {
  using Uids = AttentionUids;
  CudnnGraph graph;
  const AttentionTensors make(graph, extents);
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
  const auto scale = graph.scalar(attention_scale(extents));

  // dy . y of each query
  const auto products = graph.inner(dy.extents, dense_strides(dy.extents));
  graph.pointwise(CUDNN_POINTWISE_MUL, dy, y, products);
  const auto sums = make.column();
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, products, sums);
  graph.pointwise(CUDNN_POINTWISE_MUL, sums, graph.scalar(1), inner_products);

  // The probabilities again; dv = p^T dy
  const auto scores = make.masked_scores(q, k, scale, false);
  const auto shifted = make.scores();
  graph.pointwise(CUDNN_POINTWISE_SUB, scores, statistics, shifted);
  const auto probabilities = make.scores();
  graph.pointwise(CUDNN_POINTWISE_EXP, shifted, {}, probabilities);
  const auto [samples, heads, rows, columns] = make.score_extents();
  const Dims turned_extents{samples, heads, columns, rows};
  const Dims turned_strides{heads * rows * columns, rows * columns, 1, columns};
  const auto turned = graph.inner(turned_extents, turned_strides, extents.type);
  graph.reshape(probabilities, turned);
  const CudnnLengths key_rows{.rows = make.key_lengths(), .depth = make.query_lengths()};
  graph.multiply(turned, dy, dv, key_rows);

  // ds = p (dy v^T - dy . y) scale; dk = ds^T q
  const auto dp = make.scores();
  graph.multiply(dy, v, dp, {.rows = make.query_lengths(), .columns = make.key_lengths()});
  const auto centred = make.scores();
  graph.pointwise(CUDNN_POINTWISE_SUB, dp, inner_products, centred);
  const auto weighted = make.scores();
  graph.pointwise(CUDNN_POINTWISE_MUL, centred, probabilities, weighted);
  const auto ds = make.scores();
  graph.pointwise(CUDNN_POINTWISE_MUL, weighted, scale, ds);
  const auto turned_ds = graph.inner(turned_extents, turned_strides, extents.type);
  graph.reshape(ds, turned_ds);
  graph.multiply(turned_ds, q, dk, key_rows);

  // dq = ds k
  const auto plain_k = graph.inner(q.extents, make.row_strides(), extents.type, make.offsets());
  graph.reshape(k, plain_k);
  const CudnnLengths query_rows{.rows = make.query_lengths(), .depth = make.key_lengths()};
  if (!dq_sums) {
    graph.multiply(ds, plain_k, dq, query_rows);
    return graph;
  }
  const auto sum =
      extents.head_size % 16 == 0
          ? graph.argument(Uids::dq_sums, CUDNN_DATA_FLOAT, q.extents, make.row_strides(), 16,
                           make.offsets())
          : graph.argument(Uids::dq_sums, CUDNN_DATA_FLOAT, q.extents, dense_strides(q.extents));
  graph.multiply(ds, plain_k, sum, query_rows);
  graph.pointwise(CUDNN_POINTWISE_IDENTITY, sum, {}, dq);
  return graph;
}

}  // namespace dhp::cuda
