// Operations of the device Meta: they compute nothing and count the FLOP of products. None is fused: the unfused ones
// need at least as much memory.
#pragma once

#include <dhp/device/meta.hpp>
#include <dhp/ops/attention.hpp>
#include <dhp/ops/batch_norm.hpp>
#include <dhp/ops/conv2d.hpp>
#include <dhp/ops/gemm.hpp>

#include <concepts>

namespace dhp::detail {

/// FLOP of one product of queries and keys, or of probabilities and values, over all samples and heads.
[[nodiscard]] inline double attention_flop(In<Meta> q, const Sequences<Meta>& sequences,
                                           const AttentionOptions& options) {
  double pairs = 0;
  const auto* lengths = sequences.lengths.data<std::int32_t>();
  for (std::int64_t sample = 0; sample < sequences.lengths.count(); ++sample)
    pairs += static_cast<double>(lengths[sample]) *
             (options.causal ? (lengths[sample] + 1) / 2.0 : lengths[sample]);
  return 2 * pairs * static_cast<double>(q.columns());
}
[[nodiscard]] inline double conv2d_flop(In<Meta> w, In<Meta> y) {
  return 2.0 * static_cast<double>(y.rows()) * static_cast<double>(w.count());
}

inline void gemm_on(Meta& dev, In<Meta>, In<Meta> b, Out<Meta> c, GemmOptions options, In<Meta>) {
  const auto [m, n, k] = gemm_size<Meta>(b, c, options);
  dev.count_flop(2.0 * static_cast<double>(m * n) * static_cast<double>(k));
}
inline void conv2d_forward_on(Meta& dev, In<Meta>, In<Meta> w, Conv2dGeometry, Out<Meta> y) {
  dev.count_flop(detail::conv2d_flop(w, y));
}
inline void conv2d_backward_data_on(Meta& dev, In<Meta> dy, In<Meta> w, Conv2dGeometry, Out<Meta>,
                                    double) {
  dev.count_flop(detail::conv2d_flop(w, dy));
}
inline void conv2d_backward_filter_on(Meta& dev, In<Meta>, In<Meta> dy, Conv2dGeometry,
                                      Out<Meta> dw, double) {
  dev.count_flop(detail::conv2d_flop(dw, dy));
}
inline void attention_forward_on(Meta& dev, In<Meta> q, In<Meta>, In<Meta>,
                                 const Sequences<Meta>& sequences, const AttentionOptions& options,
                                 Out<Meta>, Out<Meta>) {
  dev.count_flop(2 * detail::attention_flop(q, sequences, options));
}
/// Excludes the recomputed probabilities.
inline void attention_backward_on(Meta& dev, In<Meta>, In<Meta> q, In<Meta>, In<Meta>, In<Meta>,
                                  In<Meta>, const Sequences<Meta>& sequences,
                                  const AttentionOptions& options, Out<Meta>, Out<Meta>,
                                  Out<Meta>) {
  dev.count_flop(4 * detail::attention_flop(q, sequences, options));
}

void activation_backward_on(std::same_as<Meta> auto&, const auto&...) {}
void attend_to_part_backward(std::same_as<Meta> auto&, const auto&...) {}
void attend_to_part_forward(std::same_as<Meta> auto&, const auto&...) {}
void activation_forward_on(std::same_as<Meta> auto&, const auto&...) {}
void adamw_update_on(std::same_as<Meta> auto&, const auto&...) {}
void add_both_on(std::same_as<Meta> auto&, const auto&...) {}
void add_on(std::same_as<Meta> auto&, const auto&...) {}
void add_signs_on(std::same_as<Meta> auto&, const auto&...) {}
void append_to_cache_on(std::same_as<Meta> auto&, const auto&...) {}
void axpy_on(std::same_as<Meta> auto&, const auto&...) {}
void attention_step_on(std::same_as<Meta> auto&, const auto&...) {}
void batch_norm_apply_on(std::same_as<Meta> auto&, const auto&...) {}
void batch_norm_backward_apply_on(std::same_as<Meta> auto&, const auto&...) {}
void batch_norm_backward_sums_on(std::same_as<Meta> auto&, const auto&...) {}
void batch_norm_residual_backward_sums_on(std::same_as<Meta> auto&, const auto&...) {}
void batch_norm_from_sums_on(std::same_as<Meta> auto&, const auto&...) {}
void batch_norm_squared_deviations_on(std::same_as<Meta> auto&, const auto&...) {}
void batch_norm_sums_on(std::same_as<Meta> auto&, const auto&...) {}
void cast_on(std::same_as<Meta> auto&, const auto&...) {}
void column_sums_on(std::same_as<Meta> auto&, const auto&...) {}
void copy_columns_on(std::same_as<Meta> auto&, const auto&...) {}
void cross_entropy_backward_on(std::same_as<Meta> auto&, const auto&...) {}
void cross_entropy_loss_on(std::same_as<Meta> auto&, const auto&...) {}
void cross_entropy_max_on(std::same_as<Meta> auto&, const auto&...) {}
void cross_entropy_rank_on(std::same_as<Meta> auto&, const auto&...) {}
void cross_entropy_sums_on(std::same_as<Meta> auto&, const auto&...) {}
void cross_entropy_totals_on(std::same_as<Meta> auto&, const auto&...) {}
void decide_step_on(std::same_as<Meta> auto&, const auto&...) {}
void dropout_on(std::same_as<Meta> auto&, const auto&...) {}
void embedding_backward_on(std::same_as<Meta> auto&, const auto&...) {}
void embedding_forward_on(std::same_as<Meta> auto&, const auto&...) {}
void exact_accumulate_on(std::same_as<Meta> auto&, const auto&...) {}
void exact_finalize_on(std::same_as<Meta> auto&, const auto&...) {}
void fill_on(std::same_as<Meta> auto&, const auto&...) {}
void fingerprint_on(std::same_as<Meta> auto&, const auto&...) {}
void find_nonfinite_on(std::same_as<Meta> auto&, const auto&...) {}
void gather_rows_on(std::same_as<Meta> auto&, const auto&...) {}
void global_average_pool_backward_on(std::same_as<Meta> auto&, const auto&...) {}
void global_average_pool_forward_on(std::same_as<Meta> auto&, const auto&...) {}
void keep_if_applied_on(std::same_as<Meta> auto&, const auto&...) {}
void lamb_rates_on(std::same_as<Meta> auto&, const auto&...) {}
void lamb_squares_on(std::same_as<Meta> auto&, const auto&...) {}
void lamb_update_on(std::same_as<Meta> auto&, const auto&...) {}
void lars_rates_on(std::same_as<Meta> auto&, const auto&...) {}
void layer_norm_backward_on(std::same_as<Meta> auto&, const auto&...) {}
void layer_norm_forward_on(std::same_as<Meta> auto&, const auto&...) {}
void max_pool_backward_on(std::same_as<Meta> auto&, const auto&...) {}
void max_pool_forward_on(std::same_as<Meta> auto&, const auto&...) {}
void objective_scales_on(std::same_as<Meta> auto&, const auto&...) {}
void orthonormalize_on(std::same_as<Meta> auto&, const auto&...) {}
void pack_signs_on(std::same_as<Meta> auto&, const auto&...) {}
void residual_layer_norm_backward_on(std::same_as<Meta> auto&, const auto&...) {}
void residual_layer_norm_forward_on(std::same_as<Meta> auto&, const auto&...) {}
void rsqrt_on(std::same_as<Meta> auto&, const auto&...) {}
void rotary_on(std::same_as<Meta> auto&, const auto&...) {}
void scale_by_on(std::same_as<Meta> auto&, const auto&...) {}
void scale_on(std::same_as<Meta> auto&, const auto&...) {}
void scatter_add_rows_on(std::same_as<Meta> auto&, const auto&...) {}
void sgd_update_on(std::same_as<Meta> auto&, const auto&...) {}
void sum_of_magnitudes_on(std::same_as<Meta> auto&, const auto&...) {}
void sum_of_squares_on(std::same_as<Meta> auto&, const auto&...) {}
void sum_on(std::same_as<Meta> auto&, const auto&...) {}
void sum_tiles_on(std::same_as<Meta> auto&, const auto&...) {}
void swiglu_backward_on(std::same_as<Meta> auto&, const auto&...) {}
void swiglu_forward_on(std::same_as<Meta> auto&, const auto&...) {}
void take_largest_on(std::same_as<Meta> auto&, const auto&...) {}
void tile_squares_on(std::same_as<Meta> auto&, const auto&...) {}
void tree_sum_on(std::same_as<Meta> auto&, const auto&...) {}
void update_moving_averages_on(std::same_as<Meta> auto&, const auto&...) {}

}  // namespace dhp::detail
