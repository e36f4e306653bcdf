// The tensors of an attention graph and the masked scores that both directions start with. Samples
// are ragged with a length each, so packed and padded batches use the same graph.
#pragma once

#include <dhp/cuda/cudnn_graph.hpp>

#include <limits>

namespace dhp::cuda {

/// Everything a graph depends on; surplus samples and lengths are empty.
struct AttentionProblem {
  cudnnDataType_t type = CUDNN_DATA_BFLOAT16;
  std::int64_t samples = 1;
  std::int64_t heads = 1;
  std::int64_t length = 1;
  std::int64_t head_size = 64;
  double dropout = 0;  ///< dropout probability; above 0 the graph has a mask

  [[nodiscard]] std::string text(const char* pass) const {
    return concat("attention ", pass, " ", type == CUDNN_DATA_HALF ? "f16" : "bf16", " samples ",
                  samples, " heads ", heads, " length ", length, " size ", head_size,
                  dropout > 0 ? concat(" dropout ", dropout) : "");
  }
  friend bool operator==(const AttentionProblem&, const AttentionProblem&) = default;
};

/// Argument numbers. offsets: i64 [samples + 1], in elements; lengths: i32 [samples], for queries
/// and for keys; statistics (logsumexp): f32 [samples, heads, length, 1]; mask, 1 if kept, 0 if
/// dropped: q's type, [samples, heads, length, length].
struct AttentionUids {
  static constexpr std::int64_t q = 1, k = 2, v = 3, y = 4, statistics = 5, offsets = 6,
                                query_lengths = 7, key_lengths = 8, dy = 9, dq = 10, dk = 11,
                                dv = 12, inner_products = 13, dq_sums = 14, mask = 15;
};

/// Tensors of both directions.
class AttentionTensors {
 public:
  AttentionTensors(CudnnGraph& graph, const AttentionProblem& problem)
      : graph_(graph),
        problem_(problem),
        offsets_(graph.argument(AttentionUids::offsets, CUDNN_DATA_INT64,
                                {problem.samples + 1, 1, 1, 1}, {1, 1, 1, 1})),
        query_lengths_(lengths(AttentionUids::query_lengths)),
        key_lengths_(lengths(AttentionUids::key_lengths)) {}

  /// [samples, heads, length, head_size] over rows of heads * head_size.
  [[nodiscard]] CudnnTensor rows(std::int64_t uid) const {
    const auto& e = problem_;
    return graph_.argument(uid, e.type, {e.samples, e.heads, e.length, e.head_size}, row_strides(),
                           16, offsets_);
  }
  /// The same as [samples, heads, head_size, length].
  [[nodiscard]] CudnnTensor transposed_rows(std::int64_t uid) const {
    const auto& e = problem_;
    const auto [sample, head, row, column] = row_strides();
    return graph_.argument(uid, e.type, {e.samples, e.heads, e.head_size, e.length},
                           {sample, head, column, row}, 16, offsets_);
  }
  [[nodiscard]] CudnnTensor statistics(std::int64_t uid) const {
    return graph_.argument(uid, CUDNN_DATA_FLOAT, column_extents(),
                           dense_strides(column_extents()));
  }
  [[nodiscard]] CudnnTensor mask() const {
    return graph_.argument(AttentionUids::mask, problem_.type, score_extents(),
                           dense_strides(score_extents()));
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
  [[nodiscard]] Dims row_strides() const {
    const auto& e = problem_;
    return {e.length * e.heads * e.head_size, e.head_size, e.heads * e.head_size, 1};
  }
  [[nodiscard]] const CudnnTensor& offsets() const { return offsets_; }
  [[nodiscard]] const CudnnTensor& query_lengths() const { return query_lengths_; }
  [[nodiscard]] const CudnnTensor& key_lengths() const { return key_lengths_; }

  /// q k^T / sqrt(head_size), minus infinity for padding.
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
    return graph_.argument(uid, CUDNN_DATA_INT32, {problem_.samples, 1, 1, 1}, {1, 1, 1, 1});
  }
  /// True where the index along `axis` is less than the length.
  [[nodiscard]] CudnnTensor before(const CudnnTensor& like, std::int64_t axis,
                                   const CudnnTensor& length) const {
    const auto index = scores(CUDNN_DATA_INT32);
    graph_.pointwise(CUDNN_POINTWISE_GEN_INDEX, like, {}, index, CUDNN_DATA_INT32, {}, axis);
    const auto is_before = scores(CUDNN_DATA_BOOLEAN);
    graph_.pointwise(CUDNN_POINTWISE_CMP_LT, index, length, is_before, CUDNN_DATA_BOOLEAN);
    return is_before;
  }

  CudnnGraph& graph_;
  AttentionProblem problem_;
  CudnnTensor offsets_, query_lengths_, key_lengths_;
};

}  // namespace dhp::cuda
