// Attention as cuDNN graphs, with operations in the order that cuDNN's fused kernels match (Dao et al. 2022; cuDNN's
// graph API, "fused flash attention"; mask and scale are placed as in the open cudnn_frontend). Each sample has an
// offset and a length, so packed and padded batches use the same graph. Dropout is cuDNN's own, because reading dhp's
// mask made its kernels slower than dhp's.
#pragma once

#include <dhp/cuda/cudnn_graph.hpp>

#include <cmath>
#include <limits>

namespace dhp::detail::cuda {

/// Everything on which a graph depends. `samples` may exceed the batch's number; surplus samples have length 0.
struct AttentionProblem {
  cudnnDataType_t type = CUDNN_DATA_BFLOAT16;
  std::int64_t samples = 1;
  std::int64_t heads = 1;
  std::int64_t length = 1;
  std::int64_t head_size = 64;
  double dropout = 0;  ///< dropout probability, drawn by cuDNN's generator
  /// Elements between two rows of q, k, v and their gradients; 0: heads * head_size.
  std::int64_t row_stride = 0;
  std::int64_t key_heads = 0;  ///< number of heads of k and v; 0: `heads`
  bool causal = false;

  [[nodiscard]] bool shares_keys() const { return key_heads > 0; }
  [[nodiscard]] std::string text(const char* pass) const {
    return concat("attention ", pass, " ", type == CUDNN_DATA_HALF ? "f16" : "bf16", " samples ",
                  samples, " heads ", heads, " length ", length, " size ", head_size,
                  dropout > 0 ? concat(" dropout ", dropout) : "",
                  row_stride > 0 ? concat(" rows ", row_stride, " apart") : "",
                  shares_keys() ? concat(" key heads ", key_heads) : "", causal ? " causal" : "");
  }
  friend bool operator==(const AttentionProblem&, const AttentionProblem&) = default;
};

/// How a backward graph sums dq. `none` adds in a fixed order and takes no scratch. The others add to f32 scratch in an
/// order that depends on timing. `rows`: laid out like q. `dense`: [samples, heads, length, head_size].
enum class DqSums { none, rows, dense };
/// Returns how dq is summed on a GPU of this compute capability. cuDNN accepts sums in rows on all GPUs, but its
/// results are wrong on 8.x and 12.x, and if there are gaps between dq's rows.
[[nodiscard]] constexpr DqSums dq_sums_for(const AttentionProblem& problem, int major,
                                           bool deterministic) {
  if (deterministic) return DqSums::none;
  const bool wide = problem.row_stride > problem.heads * problem.head_size;
  const bool rows = problem.head_size % 16 == 0 && major != 8 && major != 12 && !wide;
  return rows ? DqSums::rows : DqSums::dense;
}
/// Returns whether cuDNN's gradients need q, k and v as dense matrices, as on 12.x.
[[nodiscard]] constexpr bool needs_dense_matrices(const AttentionProblem& problem, int major) {
  return major == 12 && problem.row_stride > problem.heads * problem.head_size;
}
/// Returns the scratch bytes for gradients, padding included: dense sums of dq in f32 and, if heads share keys, dk and
/// dv of each query head in 16 bits.
[[nodiscard]] inline double attention_gradient_bytes(const AttentionProblem& problem, DqSums sums) {
  const auto elements = static_cast<double>(problem.samples * problem.heads) *
                        static_cast<double>(problem.length * problem.head_size);
  return elements * ((sums == DqSums::dense ? 4 : 0) + (problem.shares_keys() ? 4 : 0));
}
/// Returns whether scratch may be allocated: at most a sixteenth of the GPU's memory, because more is seldom free, and
/// less than 2^32 bytes, because library kernels may use 32-bit offsets.
[[nodiscard]] constexpr bool attention_scratch_fits(double bytes, std::size_t memory_bytes) {
  return bytes <= static_cast<double>(memory_bytes) / 16 && bytes < 0x1p32;
}
[[nodiscard]] inline std::string backward_text(const AttentionProblem& problem, DqSums sums) {
  const bool unusual = sums == DqSums::dense && problem.head_size % 16 == 0;
  return problem.text(sums == DqSums::none ? "backward in order"
                      : unusual            ? "backward with dense sums"
                                           : "backward");
}

/// Argument numbers. Offsets, i64 [samples + 1], count elements: `offsets` is for y, dy and dq_sums, wide_offsets for
/// q, k, v, dq, dk and dv. If heads share keys, key_offsets is for k, v, dk and dv, and dk_of_heads and dv_of_heads are
/// dense scratch [samples, heads, length, head_size]. Lengths are i32 [samples]; statistics (logsumexp) is f32
/// [samples, heads, length, 1]; seed and seed_offset are i64 [1].
struct AttentionUids {
  static constexpr std::int64_t q = 1, k = 2, v = 3, y = 4, statistics = 5, offsets = 6,
                                query_lengths = 7, key_lengths = 8, dy = 9, dq = 10, dk = 11,
                                dv = 12, inner_products = 13, dq_sums = 14, seed = 15,
                                seed_offset = 16, wide_offsets = 17, key_offsets = 18,
                                dk_of_heads = 19, dv_of_heads = 20;
};

/// The tensors that both passes use.
class AttentionTensors {
  CudnnGraph& graph_;
  AttentionProblem problem_;

 public:
  const CudnnTensor offsets, wide_offsets, key_offsets, query_lengths, key_lengths;

  AttentionTensors(CudnnGraph& graph, const AttentionProblem& problem)
      : graph_(graph),
        problem_(problem),
        offsets(starts(AttentionUids::offsets)),
        wide_offsets(starts(AttentionUids::wide_offsets)),
        key_offsets(problem.shares_keys() ? starts(AttentionUids::key_offsets) : wide_offsets),
        query_lengths(lengths(AttentionUids::query_lengths)),
        key_lengths(lengths(AttentionUids::key_lengths)) {}

  /// Describes y or its gradient.
  [[nodiscard]] CudnnTensor rows(std::int64_t uid) const {
    return matrices(uid, problem_.heads, 0, offsets);
  }
  /// Describes queries or their gradient, whose rows are the problem's stride apart.
  [[nodiscard]] CudnnTensor wide_rows(std::int64_t uid) const {
    return matrices(uid, problem_.heads, problem_.row_stride, wide_offsets);
  }
  /// Describes keys or values, with their own heads; transposed: [samples, key heads, head_size, length].
  [[nodiscard]] CudnnTensor key_rows(std::int64_t uid, bool transposed = false) const {
    const auto heads = problem_.shares_keys() ? problem_.key_heads : problem_.heads;
    return matrices(uid, heads, problem_.row_stride, key_offsets, transposed);
  }
  [[nodiscard]] CudnnTensor statistics(std::int64_t uid) const {
    return graph_.argument(uid, CUDNN_DATA_FLOAT, column_extents(),
                           dense_strides(column_extents()));
  }
  /// Makes the mask: 1 where a probability is kept, 0 where it is dropped.
  [[nodiscard]] CudnnTensor mask() const {
    return graph_.bernoulli(number(AttentionUids::seed), number(AttentionUids::seed_offset),
                            1.0 - problem_.dropout, score_extents());
  }
  [[nodiscard]] Dims score_extents() const {
    return {problem_.samples, problem_.heads, problem_.length, problem_.length};
  }
  [[nodiscard]] Dims column_extents() const {
    return {problem_.samples, problem_.heads, problem_.length, 1};
  }
  [[nodiscard]] CudnnTensor scores(cudnnDataType_t type = CUDNN_DATA_FLOAT) const {
    return graph_.inner(score_extents(), dense_strides(score_extents()), type);
  }
  [[nodiscard]] CudnnTensor column() const {
    return graph_.inner(column_extents(), dense_strides(column_extents()));
  }

  /// Computes q k^T / sqrt(head_size), and minus infinity for padding and unseen keys. padding: see
  /// CudnnGraph::multiply.
  [[nodiscard]] CudnnTensor masked_scores(const CudnnTensor& q, const CudnnTensor& transposed_k,
                                          const CudnnTensor& scale, bool padding) const {
    const auto product = scores();
    graph_.multiply(q, transposed_k, product, {.rows = query_lengths, .columns = key_lengths},
                    padding);
    const auto scaled = graph_.pointwise(CUDNN_POINTWISE_MUL, product, scale);
    const auto is_query = decided(CUDNN_POINTWISE_CMP_LT, index(scaled, 2), query_lengths);
    const auto is_key = decided(CUDNN_POINTWISE_CMP_LT, index(scaled, 3), key_lengths);
    const auto is_token = decided(CUDNN_POINTWISE_LOGICAL_AND, is_query, is_key);
    const auto masked = scores();
    const auto never = graph_.scalar(-std::numeric_limits<float>::infinity());
    graph_.pointwise(CUDNN_POINTWISE_BINARY_SELECT, scaled, never, masked, CUDNN_DATA_FLOAT,
                     is_token);
    if (!problem_.causal) return masked;
    const auto is_seen = decided(CUDNN_POINTWISE_CMP_GE, index(masked, 2), index(masked, 3));
    const auto seen = scores();
    graph_.pointwise(CUDNN_POINTWISE_BINARY_SELECT, masked, never, seen, CUDNN_DATA_FLOAT, is_seen);
    return seen;
  }

 private:
  [[nodiscard]] CudnnTensor lengths(std::int64_t uid) const {
    return graph_.argument(uid, CUDNN_DATA_INT32, {problem_.samples, 1, 1, 1}, {1, 1, 1, 1});
  }
  [[nodiscard]] CudnnTensor starts(std::int64_t uid) const {
    return graph_.argument(uid, CUDNN_DATA_INT64, {problem_.samples + 1, 1, 1, 1}, {1, 1, 1, 1});
  }
  [[nodiscard]] CudnnTensor number(std::int64_t uid) const {
    return graph_.argument(uid, CUDNN_DATA_INT64, {1, 1, 1, 1}, {1, 1, 1, 1});
  }
  /// Describes [samples, heads, length, head_size] over rows that are row_stride apart, or without gaps if it is 0.
  [[nodiscard]] CudnnTensor matrices(std::int64_t uid, std::int64_t heads, std::int64_t row_stride,
                                     const CudnnTensor& first, bool transposed = false) const {
    const auto& e = problem_;
    const auto row = row_stride == 0 ? heads * e.head_size : row_stride;
    Dims extents{e.samples, heads, e.length, e.head_size};
    Dims strides{e.length * row, e.head_size, row, 1};
    if (transposed) {
      std::swap(extents[2], extents[3]);
      std::swap(strides[2], strides[3]);
    }
    return graph_.argument(uid, e.type, extents, strides, 16, first);
  }
  /// Returns each element's index along `axis`.
  [[nodiscard]] CudnnTensor index(const CudnnTensor& like, std::int64_t axis) const {
    const auto result = scores(CUDNN_DATA_INT32);
    graph_.pointwise(CUDNN_POINTWISE_GEN_INDEX, like, {}, result, CUDNN_DATA_INT32, {}, axis);
    return result;
  }
  /// Returns the boolean tensor mode(a, b).
  [[nodiscard]] CudnnTensor decided(cudnnPointwiseMode_t mode, const CudnnTensor& a,
                                    const CudnnTensor& b) const {
    const auto result = scores(CUDNN_DATA_BOOLEAN);
    graph_.pointwise(mode, a, b, result, CUDNN_DATA_BOOLEAN);
    return result;
  }
};

[[nodiscard]] inline float attention_scale(const AttentionProblem& problem) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(problem.head_size)));
}

/// Returns the factor of kept probabilities.
[[nodiscard]] inline float kept_scale(const AttentionProblem& problem) {
  return static_cast<float>(1.0 / (1.0 - problem.dropout));
}

/// Makes the graph q, k, v -> y, statistics.
[[nodiscard]] inline CudnnGraph attention_forward_graph(const AttentionProblem& problem) {
  using Uids = AttentionUids;
  CudnnGraph graph;
  const AttentionTensors make(graph, problem);
  const auto q = make.wide_rows(Uids::q);
  const auto k = make.key_rows(Uids::k, true);
  const auto v = make.key_rows(Uids::v);
  const auto y = make.rows(Uids::y);
  const auto statistics = make.statistics(Uids::statistics);
  const auto scores = make.masked_scores(q, k, graph.scalar(attention_scale(problem)), true);
  const auto most = make.column();
  graph.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, most);
  const auto shifted = graph.pointwise(CUDNN_POINTWISE_SUB, scores, most);
  const auto powers = graph.pointwise(CUDNN_POINTWISE_EXP, shifted);
  const auto sum = make.column();
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, powers, sum);
  const auto logarithm = graph.pointwise(CUDNN_POINTWISE_LOG, sum);
  graph.pointwise(CUDNN_POINTWISE_ADD, most, logarithm, statistics);
  const bool drops = problem.dropout > 0;
  auto weights = make.scores(drops ? CUDNN_DATA_FLOAT : problem.type);
  graph.pointwise(CUDNN_POINTWISE_DIV, powers, sum, weights);
  if (drops) {
    const auto kept = graph.pointwise(CUDNN_POINTWISE_MUL, weights, make.mask());
    weights = make.scores(problem.type);
    graph.pointwise(CUDNN_POINTWISE_MUL, kept, graph.scalar(kept_scale(problem)), weights);
  }
  graph.multiply(weights, v, y, {.rows = make.query_lengths, .depth = make.key_lengths});
  return graph;
}

/// Makes the graph dy, q, k, v, y, statistics -> dq, dk, dv. Scratch: inner_products, f32 [samples, heads, length, 1],
/// and dq_sums unless `none`. With `none`, cuDNN's workspace grows with the square of the length.
[[nodiscard]] inline CudnnGraph attention_backward_graph(const AttentionProblem& problem,
                                                         DqSums dq_sums) {
  using Uids = AttentionUids;
  CudnnGraph graph;
  const AttentionTensors make(graph, problem);
  const auto q = make.wide_rows(Uids::q);
  const auto k = make.key_rows(Uids::k, true);
  const auto v = make.key_rows(Uids::v, true);
  const auto y = make.rows(Uids::y);
  const auto dy = make.rows(Uids::dy);
  const auto statistics = make.statistics(Uids::statistics);
  const auto dq = make.wide_rows(Uids::dq);
  const auto dk = make.key_rows(Uids::dk);
  const auto dv = make.key_rows(Uids::dv);
  // Writes dk or dv by make_heads(to). If heads share keys, writes the sum over these heads.
  const auto of_keys = [&](const CudnnTensor& to, std::int64_t of_heads, const auto& make_heads) {
    if (!problem.shares_keys()) return make_heads(to);
    const auto heads =
        graph.argument(of_heads, problem.type, q.extents, dense_strides(q.extents), 16);
    make_heads(heads);
    graph.reduce(CUDNN_REDUCE_TENSOR_ADD, heads, to);
  };
  const auto inner_products = make.statistics(Uids::inner_products);
  const auto scale = graph.scalar(attention_scale(problem));

  // With mask m and kept = 1 / (1 - dropout): y = (p m kept) v, so dv = (p m kept)^T dy and ds = p
  // (m kept dy v^T - dy . y) scale = p (m dy v^T - dy . y / kept) kept scale.
  std::optional<CudnnTensor> mask, kept;
  if (problem.dropout > 0) {
    mask = make.mask();
    kept = graph.scalar(kept_scale(problem));
  }
  // Returns x times the factor; without dropout, returns x.
  const auto times = [&](const CudnnTensor& x, const std::optional<CudnnTensor>& factor) {
    return factor ? graph.pointwise(CUDNN_POINTWISE_MUL, x, factor) : x;
  };

  // Computes dy . y / kept for each query.
  const auto products = graph.inner(dy.extents, dense_strides(dy.extents));
  graph.pointwise(CUDNN_POINTWISE_MUL, dy, y, products);
  const auto sums = make.column();
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, products, sums);
  graph.pointwise(CUDNN_POINTWISE_MUL, sums,
                  graph.scalar(static_cast<float>(1.0 - problem.dropout)), inner_products);

  // Recomputes p; computes dv.
  const auto scores = make.masked_scores(q, k, scale, false);
  const auto shifted = graph.pointwise(CUDNN_POINTWISE_SUB, scores, statistics);
  const auto probabilities = graph.pointwise(CUDNN_POINTWISE_EXP, shifted);
  const auto [samples, heads, rows, columns] = make.score_extents();
  const Dims turned_extents{samples, heads, columns, rows};
  const Dims turned_strides{heads * rows * columns, rows * columns, 1, columns};
  const auto turned = graph.inner(turned_extents, turned_strides, problem.type);
  graph.reshape(times(times(probabilities, mask), kept), turned);
  const CudnnLengths key_rows{.rows = make.key_lengths, .depth = make.query_lengths};
  of_keys(dv, Uids::dv_of_heads,
          [&](const CudnnTensor& to) { graph.multiply(turned, dy, to, key_rows); });

  // Computes ds, and dk = ds^T q.
  const auto dp = make.scores();
  graph.multiply(dy, v, dp, {.rows = make.query_lengths, .columns = make.key_lengths});
  const auto centered = graph.pointwise(CUDNN_POINTWISE_SUB, times(dp, mask), inner_products);
  const auto weighted = graph.pointwise(CUDNN_POINTWISE_MUL, centered, probabilities);
  const auto ds = graph.pointwise(CUDNN_POINTWISE_MUL, times(weighted, kept), scale);
  const auto turned_ds = graph.inner(turned_extents, turned_strides, problem.type);
  graph.reshape(ds, turned_ds);
  of_keys(dk, Uids::dk_of_heads,
          [&](const CudnnTensor& to) { graph.multiply(turned_ds, q, to, key_rows); });

  // Computes dq = ds k.
  const auto plain_k = graph.inner(dk.extents, dk.strides, problem.type, make.key_offsets);
  graph.reshape(k, plain_k);
  const CudnnLengths query_rows{.rows = make.query_lengths, .depth = make.key_lengths};
  if (dq_sums == DqSums::none) {
    graph.multiply(ds, plain_k, dq, query_rows);
    return graph;
  }
  const auto sum =
      dq_sums == DqSums::rows
          ? graph.argument(Uids::dq_sums, CUDNN_DATA_FLOAT, q.extents, y.strides, 16, make.offsets)
          : graph.argument(Uids::dq_sums, CUDNN_DATA_FLOAT, q.extents, dense_strides(q.extents));
  graph.multiply(ds, plain_k, sum, query_rows);
  graph.pointwise(CUDNN_POINTWISE_IDENTITY, sum, {}, dq);
  return graph;
}

}  // namespace dhp::detail::cuda
