// Explicit template instances of dhp for the Cpu. One source file of a program contains only
//   #include <dhp/cpu_instances.ipp>
// and compiles them. All other files include dhp/cpu_declared.hpp, and compile in a fraction of the time.
// cmake/cpu_compiled.cmake makes a source file of dhp::cpu_compiled from each section of this list.
#include <dhp/cpu.hpp>

#ifndef DHP_INSTANCE
#define DHP_INSTANCE template
#endif

namespace dhp {

// cpu/activation
DHP_INSTANCE decltype(detail::map_on<detail::Relu, Cpu>) detail::map_on<detail::Relu, Cpu>;
DHP_INSTANCE decltype(detail::map_on<detail::ReluGradient, Cpu>)
    detail::map_on<detail::ReluGradient, Cpu>;
DHP_INSTANCE decltype(detail::map_on<detail::Gelu, Cpu>) detail::map_on<detail::Gelu, Cpu>;
DHP_INSTANCE decltype(detail::map_on<detail::GeluGradient, Cpu>)
    detail::map_on<detail::GeluGradient, Cpu>;
DHP_INSTANCE decltype(detail::map_on<detail::GeluTanh, Cpu>) detail::map_on<detail::GeluTanh, Cpu>;
DHP_INSTANCE decltype(detail::map_on<detail::GeluTanhGradient, Cpu>)
    detail::map_on<detail::GeluTanhGradient, Cpu>;
DHP_INSTANCE decltype(detail::map_on<detail::Tanh, Cpu>) detail::map_on<detail::Tanh, Cpu>;
DHP_INSTANCE decltype(detail::map_on<detail::TanhGradient, Cpu>)
    detail::map_on<detail::TanhGradient, Cpu>;
DHP_INSTANCE decltype(detail::map_on<detail::Swiglu, Cpu>) detail::map_on<detail::Swiglu, Cpu>;
DHP_INSTANCE decltype(detail::map_on<detail::SwigluGateGradient, Cpu>)
    detail::map_on<detail::SwigluGateGradient, Cpu>;
// cpu/attention
DHP_INSTANCE decltype(detail::attention_forward_on<Cpu>) detail::attention_forward_on<Cpu>;
DHP_INSTANCE decltype(detail::attention_backward_on<Cpu>) detail::attention_backward_on<Cpu>;
DHP_INSTANCE decltype(detail::attend_to_part_forward_on<Cpu>) detail::attend_to_part_forward_on<Cpu>;
DHP_INSTANCE decltype(detail::attend_to_part_backward_on<Cpu>) detail::attend_to_part_backward_on<Cpu>;
// cpu/batch_norm
DHP_INSTANCE decltype(detail::batch_norm_squared_deviations_on<Cpu>)
    detail::batch_norm_squared_deviations_on<Cpu>;
DHP_INSTANCE decltype(detail::batch_norm_apply_on<Cpu>) detail::batch_norm_apply_on<Cpu>;
DHP_INSTANCE decltype(detail::batch_norm_backward_sums_on<Cpu>)
    detail::batch_norm_backward_sums_on<Cpu>;
DHP_INSTANCE decltype(detail::batch_norm_backward_apply_on<Cpu>)
    detail::batch_norm_backward_apply_on<Cpu>;
DHP_INSTANCE decltype(detail::batch_norm_from_sums_on<Cpu>) detail::batch_norm_from_sums_on<Cpu>;
// cpu/cached_attention
DHP_INSTANCE decltype(detail::append_to_cache_on<Cpu>) detail::append_to_cache_on<Cpu>;
DHP_INSTANCE decltype(detail::attention_step_on<Cpu>) detail::attention_step_on<Cpu>;
// cpu/compression
DHP_INSTANCE decltype(detail::keep_if_applied_on<Cpu>) detail::keep_if_applied_on<Cpu>;
DHP_INSTANCE decltype(detail::take_largest_on<Cpu>) detail::take_largest_on<Cpu>;
DHP_INSTANCE decltype(detail::pack_signs_on<Cpu>) detail::pack_signs_on<Cpu>;
DHP_INSTANCE decltype(detail::add_signs_on<Cpu>) detail::add_signs_on<Cpu>;
DHP_INSTANCE decltype(detail::orthonormalize_on<Cpu>) detail::orthonormalize_on<Cpu>;
// cpu/conv2d
DHP_INSTANCE decltype(detail::conv2d_forward_on<Cpu>) detail::conv2d_forward_on<Cpu>;
DHP_INSTANCE decltype(detail::conv2d_backward_data_on<Cpu>) detail::conv2d_backward_data_on<Cpu>;
DHP_INSTANCE decltype(detail::conv2d_backward_filter_on<Cpu>)
    detail::conv2d_backward_filter_on<Cpu>;
// cpu/cross_entropy
DHP_INSTANCE decltype(detail::cross_entropy_max_on<Cpu>) detail::cross_entropy_max_on<Cpu>;
DHP_INSTANCE decltype(detail::cross_entropy_sums_on<Cpu>) detail::cross_entropy_sums_on<Cpu>;
DHP_INSTANCE decltype(detail::cross_entropy_loss_on<Cpu>) detail::cross_entropy_loss_on<Cpu>;
DHP_INSTANCE decltype(detail::cross_entropy_rank_on<Cpu>) detail::cross_entropy_rank_on<Cpu>;
DHP_INSTANCE decltype(detail::cross_entropy_totals_on<Cpu>) detail::cross_entropy_totals_on<Cpu>;
DHP_INSTANCE decltype(detail::cross_entropy_backward_on<Cpu>)
    detail::cross_entropy_backward_on<Cpu>;
// cpu/dropout
DHP_INSTANCE decltype(detail::dropout_on<Cpu>) detail::dropout_on<Cpu>;
// cpu/elementwise
DHP_INSTANCE decltype(detail::fill_on<Cpu>) detail::fill_on<Cpu>;
DHP_INSTANCE decltype(detail::add_on<Cpu>) detail::add_on<Cpu>;
DHP_INSTANCE decltype(detail::axpy_on<Cpu>) detail::axpy_on<Cpu>;
DHP_INSTANCE decltype(detail::add_both_on<Cpu>) detail::add_both_on<Cpu>;
DHP_INSTANCE decltype(detail::scale_on<Cpu>) detail::scale_on<Cpu>;
DHP_INSTANCE decltype(detail::cast_on<Cpu>) detail::cast_on<Cpu>;
DHP_INSTANCE decltype(detail::rsqrt_on<Cpu>) detail::rsqrt_on<Cpu>;
// cpu/exact_sum
DHP_INSTANCE decltype(detail::exact_accumulate_on<Cpu>) detail::exact_accumulate_on<Cpu>;
DHP_INSTANCE decltype(detail::exact_finalize_on<Cpu>) detail::exact_finalize_on<Cpu>;
// cpu/fingerprint
DHP_INSTANCE decltype(detail::fingerprint_on<Cpu>) detail::fingerprint_on<Cpu>;
// cpu/gemm
DHP_INSTANCE decltype(detail::gemm_on<Cpu>) detail::gemm_on<Cpu>;
DHP_INSTANCE decltype(detail::cpu::serial_gemm<double>) detail::cpu::serial_gemm<double>;
DHP_INSTANCE decltype(detail::cpu::serial_gemm<float>) detail::cpu::serial_gemm<float>;
// cpu/layer_norm
DHP_INSTANCE decltype(detail::layer_norm_forward_on<Cpu>) detail::layer_norm_forward_on<Cpu>;
DHP_INSTANCE decltype(detail::layer_norm_backward_on<Cpu>) detail::layer_norm_backward_on<Cpu>;
// cpu/optimizer
DHP_INSTANCE decltype(detail::update_weights_on<detail::SgdRule<0>, Cpu>)
    detail::update_weights_on<detail::SgdRule<0>, Cpu>;
DHP_INSTANCE decltype(detail::update_weights_on<detail::SgdRule<1>, Cpu>)
    detail::update_weights_on<detail::SgdRule<1>, Cpu>;
DHP_INSTANCE decltype(detail::update_weights_on<detail::AdamwRule, Cpu>)
    detail::update_weights_on<detail::AdamwRule, Cpu>;
DHP_INSTANCE decltype(detail::update_weights_on<detail::LambRule, Cpu>)
    detail::update_weights_on<detail::LambRule, Cpu>;
DHP_INSTANCE decltype(detail::update_weights_on<detail::MovingAverageRule, Cpu>)
    detail::update_weights_on<detail::MovingAverageRule, Cpu>;
DHP_INSTANCE decltype(detail::lamb_squares_on<Cpu>) detail::lamb_squares_on<Cpu>;
DHP_INSTANCE decltype(detail::layer_rates_on<detail::LarsRule, Cpu>)
    detail::layer_rates_on<detail::LarsRule, Cpu>;
DHP_INSTANCE decltype(detail::layer_rates_on<detail::LambRate, Cpu>)
    detail::layer_rates_on<detail::LambRate, Cpu>;
// cpu/pool
DHP_INSTANCE decltype(detail::max_pool_forward_on<Cpu>) detail::max_pool_forward_on<Cpu>;
DHP_INSTANCE decltype(detail::max_pool_backward_on<Cpu>) detail::max_pool_backward_on<Cpu>;
DHP_INSTANCE decltype(detail::global_average_pool_forward_on<Cpu>)
    detail::global_average_pool_forward_on<Cpu>;
DHP_INSTANCE decltype(detail::global_average_pool_backward_on<Cpu>)
    detail::global_average_pool_backward_on<Cpu>;
// cpu/reduce
DHP_INSTANCE decltype(detail::column_sums_on<Cpu>) detail::column_sums_on<Cpu>;
DHP_INSTANCE decltype(detail::sum_on<detail::Itself, Cpu>) detail::sum_on<detail::Itself, Cpu>;
DHP_INSTANCE decltype(detail::sum_on<detail::Square, Cpu>) detail::sum_on<detail::Square, Cpu>;
DHP_INSTANCE decltype(detail::sum_on<detail::Magnitude, Cpu>) detail::sum_on<detail::Magnitude, Cpu>;
DHP_INSTANCE decltype(detail::sum_on<detail::IsNonfinite, Cpu>)
    detail::sum_on<detail::IsNonfinite, Cpu>;
// cpu/rotary
DHP_INSTANCE decltype(detail::rotary_on<Cpu>) detail::rotary_on<Cpu>;
// cpu/rows
DHP_INSTANCE decltype(detail::copy_columns_on<Cpu>) detail::copy_columns_on<Cpu>;
DHP_INSTANCE decltype(detail::gather_rows_on<Cpu>) detail::gather_rows_on<Cpu>;
DHP_INSTANCE decltype(detail::scatter_add_rows_on<Cpu>) detail::scatter_add_rows_on<Cpu>;
// cpu/segments
DHP_INSTANCE decltype(detail::tile_squares_on<Cpu>) detail::tile_squares_on<Cpu>;
DHP_INSTANCE decltype(detail::sum_tiles_on<Cpu>) detail::sum_tiles_on<Cpu>;
// cpu/step
DHP_INSTANCE decltype(detail::decide_step_on<Cpu>) detail::decide_step_on<Cpu>;
DHP_INSTANCE decltype(detail::objective_scales_on<Cpu>) detail::objective_scales_on<Cpu>;
// cpu/tree_sum
DHP_INSTANCE decltype(detail::tree_sum_on<Cpu>) detail::tree_sum_on<Cpu>;
// comm/reduce_slice
DHP_INSTANCE decltype(detail::reduce_slice_of<double>) detail::reduce_slice_of<double>;
DHP_INSTANCE decltype(detail::reduce_slice_of<float>) detail::reduce_slice_of<float>;
DHP_INSTANCE decltype(detail::reduce_slice_of<bf16>) detail::reduce_slice_of<bf16>;
DHP_INSTANCE decltype(detail::reduce_slice_of<f16>) detail::reduce_slice_of<f16>;
DHP_INSTANCE decltype(detail::reduce_slice_of<std::int32_t>) detail::reduce_slice_of<std::int32_t>;
DHP_INSTANCE decltype(detail::reduce_slice_of<std::int64_t>) detail::reduce_slice_of<std::int64_t>;
DHP_INSTANCE decltype(detail::reduce_slice_of<std::uint8_t>) detail::reduce_slice_of<std::uint8_t>;
// framework
DHP_INSTANCE class detail::SegmentTable<Cpu>;
DHP_INSTANCE class Tensor<Cpu>;
DHP_INSTANCE class TraceScope<Cpu>;
DHP_INSTANCE class Comm<Cpu>;
DHP_INSTANCE class Event<Cpu>;
DHP_INSTANCE class detail::RankLauncher<Cpu>;
DHP_INSTANCE class Mesh<Cpu>;
DHP_INSTANCE class CallChecking<Cpu>;
DHP_INSTANCE class detail::CallCounting<Cpu>;
DHP_INSTANCE class CommObserver<Cpu>;
DHP_INSTANCE class CallTracing<Cpu>;
DHP_INSTANCE class Progress<Cpu>;
DHP_INSTANCE class ActivationLayer<Cpu>;
DHP_INSTANCE class BatchNorm<Cpu>;
DHP_INSTANCE class Conv2d<Cpu>;
DHP_INSTANCE class CrossEntropy<Cpu>;
DHP_INSTANCE class ClassificationLoss<Cpu>;
DHP_INSTANCE class detail::DropoutUse<Cpu>;
DHP_INSTANCE class Dropout<Cpu>;
DHP_INSTANCE class Embedding<Cpu>;
DHP_INSTANCE class FeedForward<Cpu>;
DHP_INSTANCE class AnyLayer<Cpu>;
DHP_INSTANCE class detail::LayerNormParameters<Cpu>;
DHP_INSTANCE class LayerNorm<Cpu>;
DHP_INSTANCE class detail::LinearParts<Cpu>;
DHP_INSTANCE class Linear<Cpu>;
DHP_INSTANCE class AnyLoss<Cpu>;
DHP_INSTANCE class detail::LowRank<Cpu>;
DHP_INSTANCE class MeanSquaredError<Cpu>;
DHP_INSTANCE class detail::Adapter<Cpu>;
DHP_INSTANCE class ModelBuilder<Cpu>;
DHP_INSTANCE class Replicas<Cpu>;
DHP_INSTANCE class ParameterStore<Cpu>;
DHP_INSTANCE class MaxPool<Cpu>;
DHP_INSTANCE class GlobalAveragePool<Cpu>;
DHP_INSTANCE class Residual<Cpu>;
DHP_INSTANCE class ResidualBatchNorm<Cpu>;
DHP_INSTANCE class ResidualLayerNorm<Cpu>;
DHP_INSTANCE class SampleEmbeddings<Cpu>;
DHP_INSTANCE class SelfAttention<Cpu>;
DHP_INSTANCE class Sequential<Cpu>;
DHP_INSTANCE class AdamW<Cpu>;
DHP_INSTANCE class detail::Lamb<Cpu>;
DHP_INSTANCE class detail::Lars<Cpu>;
DHP_INSTANCE class Norms<Cpu>;
DHP_INSTANCE class Optimizer<Cpu>;
DHP_INSTANCE class BufferedOptimizer<Cpu>;
DHP_INSTANCE class Sgd<Cpu>;
DHP_INSTANCE class GatherChannels<Cpu>;
DHP_INSTANCE class ScatterChannels<Cpu>;
DHP_INSTANCE class PipelineParallel<Cpu>;
DHP_INSTANCE class detail::StageLayers<Cpu>;
DHP_INSTANCE class detail::PlainReducer<Cpu>;
DHP_INSTANCE class BucketedReducer<Cpu>;
DHP_INSTANCE class detail::AnyReducer<Cpu>;
DHP_INSTANCE class GroupSum<Cpu>;
DHP_INSTANCE class detail::DeferredGradient<Cpu>;
DHP_INSTANCE class Tape<Cpu>;
DHP_INSTANCE class TrainingRun<Cpu>;
DHP_INSTANCE class detail::InitialValues<Cpu>;
DHP_INSTANCE class detail::ShardedBucket<Cpu>;
DHP_INSTANCE class detail::FusedValues<Cpu>;
DHP_INSTANCE class detail::TiedParameters<Cpu>;
DHP_INSTANCE class detail::ShardedReducer<Cpu>;
DHP_INSTANCE class detail::StepRecorder<Cpu>;
DHP_INSTANCE class ParameterState<Cpu>;
DHP_INSTANCE class DataParallel<Cpu, PipelineParallel<Cpu>>;
DHP_INSTANCE class Trainer<Cpu, DataParallel<Cpu, PipelineParallel<Cpu>>>;
DHP_INSTANCE std::unique_ptr<Optimizer<Cpu>> make_optimizer(Cpu&, ParameterStore<Cpu>&,
                                                            const Norms<Cpu>&,
                                                            const OptimizerChoice&);

}  // namespace dhp

#undef DHP_INSTANCE
