// The operations of the device Meta: nothing is computed.
#pragma once

#include <dhp/device/meta.hpp>
#include <dhp/ops/batch_norm.hpp>

#include <concepts>
#include <optional>

namespace dhp {

void activation_backward_on(std::same_as<Meta> auto&, const auto&...) {}
void activation_forward_on(std::same_as<Meta> auto&, const auto&...) {}
void adamw_update_on(std::same_as<Meta> auto&, const auto&...) {}
void add_both_on(std::same_as<Meta> auto&, const auto&...) {}
void add_on(std::same_as<Meta> auto&, const auto&...) {}
void attention_backward_on(std::same_as<Meta> auto&, const auto&...) {}
void attention_forward_on(std::same_as<Meta> auto&, const auto&...) {}
void axpy_on(std::same_as<Meta> auto&, const auto&...) {}
void batch_norm_apply_on(std::same_as<Meta> auto&, const auto&...) {}
void batch_norm_backward_apply_on(std::same_as<Meta> auto&, const auto&...) {}
void batch_norm_backward_sums_on(std::same_as<Meta> auto&, const auto&...) {}
void batch_norm_residual_backward_sums_on(std::same_as<Meta> auto&, const auto&...) {}
void batch_norm_from_sums_on(std::same_as<Meta> auto&, const auto&...) {}
void batch_norm_squared_deviations_on(std::same_as<Meta> auto&, const auto&...) {}
void batch_norm_sums_on(std::same_as<Meta> auto&, const auto&...) {}
void cast_on(std::same_as<Meta> auto&, const auto&...) {}
void column_sums_on(std::same_as<Meta> auto&, const auto&...) {}
void conv2d_backward_data_on(std::same_as<Meta> auto&, const auto&...) {}
void conv2d_backward_filter_on(std::same_as<Meta> auto&, const auto&...) {}
void conv2d_forward_on(std::same_as<Meta> auto&, const auto&...) {}
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
void find_nonfinite_on(std::same_as<Meta> auto&, const auto&...) {}
void gather_rows_on(std::same_as<Meta> auto&, const auto&...) {}
void gemm_on(std::same_as<Meta> auto&, const auto&...) {}
void global_average_pool_backward_on(std::same_as<Meta> auto&, const auto&...) {}
void global_average_pool_forward_on(std::same_as<Meta> auto&, const auto&...) {}
void lamb_rates_on(std::same_as<Meta> auto&, const auto&...) {}
void lamb_squares_on(std::same_as<Meta> auto&, const auto&...) {}
void lamb_update_on(std::same_as<Meta> auto&, const auto&...) {}
void lars_rates_on(std::same_as<Meta> auto&, const auto&...) {}
void layer_norm_backward_on(std::same_as<Meta> auto&, const auto&...) {}
void layer_norm_forward_on(std::same_as<Meta> auto&, const auto&...) {}
void max_pool_backward_on(std::same_as<Meta> auto&, const auto&...) {}
void max_pool_forward_on(std::same_as<Meta> auto&, const auto&...) {}
void objective_scales_on(std::same_as<Meta> auto&, const auto&...) {}
void residual_layer_norm_backward_on(std::same_as<Meta> auto&, const auto&...) {}
void residual_layer_norm_forward_on(std::same_as<Meta> auto&, const auto&...) {}
void rsqrt_on(std::same_as<Meta> auto&, const auto&...) {}
void scale_by_on(std::same_as<Meta> auto&, const auto&...) {}
void scale_on(std::same_as<Meta> auto&, const auto&...) {}
void scatter_add_rows_on(std::same_as<Meta> auto&, const auto&...) {}
void sgd_update_on(std::same_as<Meta> auto&, const auto&...) {}
void sum_of_squares_on(std::same_as<Meta> auto&, const auto&...) {}
void sum_on(std::same_as<Meta> auto&, const auto&...) {}
void sum_tiles_on(std::same_as<Meta> auto&, const auto&...) {}
void tile_squares_on(std::same_as<Meta> auto&, const auto&...) {}
void update_moving_averages_on(std::same_as<Meta> auto&, const auto&...) {}

// No fused form: the operations one by one need as much memory or more.
bool linear_gelu_fused_on(std::same_as<Meta> auto&, const auto&...) { return false; }
std::optional<Tensor<Meta>> conv2d_backward_data_to_norm_on(std::same_as<Meta> auto&,
                                                            const auto&...) {
  return {};
}
bool gelu_linear_backward_fused_on(std::same_as<Meta> auto&, const auto&...) { return false; }
bool linear_gradients_fused_on(std::same_as<Meta> auto&, const auto&...) { return false; }
std::optional<Tensor<Meta>> conv2d_forward_with_sums_on(std::same_as<Meta> auto&, const auto&...) {
  return {};
}
std::optional<BatchNormResult<Meta>> batch_norm_fused_apply_on(std::same_as<Meta> auto&,
                                                               const auto&...) {
  return {};
}
std::optional<BatchNormResult<Meta>> batch_norm_fused_on(std::same_as<Meta> auto&, const auto&...) {
  return {};
}
std::optional<BatchNormGradients<Meta>> batch_norm_fused_backward_on(std::same_as<Meta> auto&,
                                                                     const auto&...) {
  return {};
}

}  // namespace dhp
