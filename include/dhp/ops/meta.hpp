// Operations of the device Meta. They compute nothing and count FLOP, bytes and launches. None is fused: unfused
// operations need at least as much memory, so the estimate of memory is not too low.
#pragma once

#include <dhp/device/meta.hpp>
#include <dhp/ops/attention.hpp>
#include <dhp/ops/batch_norm.hpp>
#include <dhp/ops/conv2d.hpp>
#include <dhp/ops/gemm.hpp>

namespace dhp::detail {

/// Returns the FLOP of one product, queries by keys or probabilities by values, over all samples and heads.
[[nodiscard]] inline double attention_flop(InView<Meta> q, const Sequences<Meta>& sequences,
                                           const AttentionOptions& options) {
  double pairs = 0;
  const auto* lengths = sequences.lengths.data<std::int32_t>();
  for (std::int64_t sample = 0; sample < sequences.lengths.count(); ++sample)
    pairs += static_cast<double>(lengths[sample]) *
             (options.causal ? (lengths[sample] + 1) / 2.0 : lengths[sample]);
  return 2 * pairs * static_cast<double>(q.columns());
}
[[nodiscard]] inline double conv2d_flop(InView<Meta> w, InView<Meta> y) {
  return 2.0 * static_cast<double>(y.rows()) * static_cast<double>(w.count());
}

inline void gemm_on(Meta& dev, InView<Meta> a, InView<Meta> b, OutView<Meta> c, GemmOptions options,
                    InView<Meta>) {
  const auto [m, n, k] = gemm_size<Meta>(b, c, options);
  dev.count_product(2.0 * static_cast<double>(m * n) * static_cast<double>(k), a, b, c);
}
inline void conv2d_forward_on(Meta& dev, InView<Meta> x, InView<Meta> w, Conv2dGeometry,
                              OutView<Meta> y) {
  dev.count_product(detail::conv2d_flop(w, y), x, w, y);
}
inline void conv2d_backward_data_on(Meta& dev, InView<Meta> dy, InView<Meta> w, Conv2dGeometry,
                                    OutView<Meta> dx, double) {
  dev.count_product(detail::conv2d_flop(w, dy), dy, w, dx);
}
inline void conv2d_backward_filter_on(Meta& dev, InView<Meta> x, InView<Meta> dy, Conv2dGeometry,
                                      OutView<Meta> dw, double) {
  dev.count_product(detail::conv2d_flop(dw, dy), x, dy, dw);
}
inline void attention_forward_on(Meta& dev, InView<Meta> q, InView<Meta> k, InView<Meta> v,
                                 const Sequences<Meta>& sequences, const AttentionOptions& options,
                                 OutView<Meta> y, OutView<Meta>) {
  dev.count_attention(2 * detail::attention_flop(q, sequences, options), options.dropout > 0, q, k,
                      v, y);
}
/// Counts the gradient without the recomputation of the probabilities.
inline void attention_backward_on(Meta& dev, InView<Meta>, InView<Meta> q, InView<Meta>,
                                  InView<Meta>, InView<Meta>, InView<Meta>,
                                  const Sequences<Meta>& sequences, const AttentionOptions& options,
                                  OutView<Meta> dq, OutView<Meta> dk, OutView<Meta>) {
  dev.count_attention(4 * detail::attention_flop(q, sequences, options), options.dropout > 0, q, q,
                      dk, dk, dq, dk, dk);
}

/// Returns the FLOP of one product with a part of the keys. A causal mask keeps about half of all pairs.
[[nodiscard]] inline double attention_flop(InView<Meta> q, const AttentionParts<Meta>& parts,
                                           const AttentionOptions& options) {
  const auto tokens = [](const TokenRuns& runs) {
    return static_cast<double>(runs[0].length + runs[1].length);
  };
  double pairs = 0;
  for (std::size_t at = 0; at < parts.queries.size(); ++at)
    pairs += tokens(parts.queries[at]) * tokens(parts.keys[at]);
  return 2 * pairs * static_cast<double>(q.columns()) / (options.causal ? 2 : 1);
}
inline void attend_to_part_forward_on(Meta& dev, InView<Meta> q, InView<Meta> k, InView<Meta> v,
                                      const AttentionParts<Meta>& parts,
                                      const AttentionOptions& options, OutView<Meta> y,
                                      OutView<Meta>) {
  dev.count_attention(2 * attention_flop(q, parts, options), options.dropout > 0, q, k, v, y);
}
inline void attend_to_part_backward_on(Meta& dev, InView<Meta>, InView<Meta> q, InView<Meta>,
                                       InView<Meta>, InView<Meta>, InView<Meta>,
                                       const AttentionParts<Meta>& parts,
                                       const AttentionOptions& options, OutView<Meta> dq,
                                       OutView<Meta> dk, OutView<Meta>) {
  dev.count_attention(4 * attention_flop(q, parts, options), options.dropout > 0, q, q, dk, dk, dq,
                      dk, dk);
}

/// Excludes these overloads where dhp/cpu_instances.ipp names an instance `..._on<Cpu>`.
template <class Dev>
concept IsMeta = std::same_as<Dev, Meta>;

void add_both_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void add_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void add_signs_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void append_to_cache_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void axpy_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void attention_step_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void batch_norm_apply_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void batch_norm_backward_apply_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void batch_norm_backward_sums_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void batch_norm_from_sums_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void batch_norm_squared_deviations_on(IsMeta auto& d, const auto&... all) {
  d.count_launch(all...);
}
void cast_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void column_sums_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void copy_columns_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void cross_entropy_backward_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void cross_entropy_loss_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void cross_entropy_max_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void cross_entropy_rank_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void cross_entropy_sums_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void cross_entropy_totals_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void decide_step_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void dropout_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void exact_accumulate_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void exact_finalize_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void fill_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void fingerprint_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void gather_rows_on(IsMeta auto& d, const auto&, const auto&, std::int64_t, bool, const auto& y) {
  d.count_launch(y, y);  // the gathered rows of x and y, not all of x
}
void global_average_pool_backward_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void global_average_pool_forward_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void keep_if_applied_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void lamb_squares_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void layer_rates_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void layer_norm_backward_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void layer_norm_forward_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void map_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void max_pool_backward_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void max_pool_forward_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void objective_scales_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void orthonormalize_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void pack_signs_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void rsqrt_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void rotary_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void scale_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void scatter_add_rows_on(IsMeta auto& d, const auto& dy, const auto&...) {
  d.count_launch(dy, dy);  // the rows of dy and dx, not all of dx
}
void sum_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void sum_tiles_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void take_largest_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void tile_squares_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void tree_sum_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }
void update_weights_on(IsMeta auto& d, const auto&... all) { d.count_launch(all...); }

}  // namespace dhp::detail
