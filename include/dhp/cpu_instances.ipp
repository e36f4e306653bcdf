// The instances of dhp for the Cpu. One source file of a program has nothing but
//   #include <dhp/cpu_instances.ipp>
// and compiles them; all others include dhp/cpu_declared.hpp, and are compiled in a fraction of the time. dhp::cpu_compiled is
// made of this list, of each section side by side.
#include <dhp/cpu.hpp>

#ifndef DHP_INSTANCE
#define DHP_INSTANCE template
#endif

namespace dhp {

// cpu/activation
DHP_INSTANCE decltype(activation_forward_on<Cpu>) activation_forward_on<Cpu>;
DHP_INSTANCE decltype(activation_backward_on<Cpu>) activation_backward_on<Cpu>;
// cpu/attention
DHP_INSTANCE decltype(attention_forward_on<Cpu>) attention_forward_on<Cpu>;
DHP_INSTANCE decltype(attention_backward_on<Cpu>) attention_backward_on<Cpu>;
// cpu/batch_norm
DHP_INSTANCE decltype(batch_norm_sums_on<Cpu>) batch_norm_sums_on<Cpu>;
DHP_INSTANCE decltype(batch_norm_squared_deviations_on<Cpu>) batch_norm_squared_deviations_on<Cpu>;
DHP_INSTANCE decltype(batch_norm_apply_on<Cpu>) batch_norm_apply_on<Cpu>;
DHP_INSTANCE decltype(batch_norm_backward_sums_on<Cpu>) batch_norm_backward_sums_on<Cpu>;
DHP_INSTANCE decltype(batch_norm_residual_backward_sums_on<Cpu>) batch_norm_residual_backward_sums_on<Cpu>;
DHP_INSTANCE decltype(batch_norm_backward_apply_on<Cpu>) batch_norm_backward_apply_on<Cpu>;
DHP_INSTANCE decltype(batch_norm_from_sums_on<Cpu>) batch_norm_from_sums_on<Cpu>;
// cpu/compression
DHP_INSTANCE decltype(keep_if_applied_on<Cpu>) keep_if_applied_on<Cpu>;
DHP_INSTANCE decltype(take_largest_on<Cpu>) take_largest_on<Cpu>;
DHP_INSTANCE decltype(pack_signs_on<Cpu>) pack_signs_on<Cpu>;
DHP_INSTANCE decltype(add_signs_on<Cpu>) add_signs_on<Cpu>;
DHP_INSTANCE decltype(orthonormalize_on<Cpu>) orthonormalize_on<Cpu>;
// cpu/conv2d
DHP_INSTANCE decltype(conv2d_forward_on<Cpu>) conv2d_forward_on<Cpu>;
DHP_INSTANCE decltype(conv2d_backward_data_on<Cpu>) conv2d_backward_data_on<Cpu>;
DHP_INSTANCE decltype(conv2d_backward_filter_on<Cpu>) conv2d_backward_filter_on<Cpu>;
// cpu/cross_entropy
DHP_INSTANCE decltype(cross_entropy_max_on<Cpu>) cross_entropy_max_on<Cpu>;
DHP_INSTANCE decltype(cross_entropy_sums_on<Cpu>) cross_entropy_sums_on<Cpu>;
DHP_INSTANCE decltype(cross_entropy_loss_on<Cpu>) cross_entropy_loss_on<Cpu>;
DHP_INSTANCE decltype(cross_entropy_rank_on<Cpu>) cross_entropy_rank_on<Cpu>;
DHP_INSTANCE decltype(cross_entropy_totals_on<Cpu>) cross_entropy_totals_on<Cpu>;
DHP_INSTANCE decltype(cross_entropy_backward_on<Cpu>) cross_entropy_backward_on<Cpu>;
// cpu/dropout
DHP_INSTANCE decltype(dropout_on<Cpu>) dropout_on<Cpu>;
// cpu/elementwise
DHP_INSTANCE decltype(fill_on<Cpu>) fill_on<Cpu>; DHP_INSTANCE decltype(add_on<Cpu>) add_on<Cpu>;
DHP_INSTANCE decltype(axpy_on<Cpu>) axpy_on<Cpu>;
DHP_INSTANCE decltype(add_both_on<Cpu>) add_both_on<Cpu>;
DHP_INSTANCE decltype(scale_on<Cpu>) scale_on<Cpu>;
DHP_INSTANCE decltype(scale_by_on<Cpu>) scale_by_on<Cpu>;
DHP_INSTANCE decltype(cast_on<Cpu>) cast_on<Cpu>;
DHP_INSTANCE decltype(rsqrt_on<Cpu>) rsqrt_on<Cpu>;
// cpu/embedding
DHP_INSTANCE decltype(embedding_forward_on<Cpu>) embedding_forward_on<Cpu>;
DHP_INSTANCE decltype(embedding_backward_on<Cpu>) embedding_backward_on<Cpu>;
// cpu/exact_sum
DHP_INSTANCE decltype(exact_accumulate_on<Cpu>) exact_accumulate_on<Cpu>;
DHP_INSTANCE decltype(exact_finalize_on<Cpu>) exact_finalize_on<Cpu>;
// cpu/fingerprint
DHP_INSTANCE decltype(fingerprint_on<Cpu>) fingerprint_on<Cpu>;
// cpu/gemm
DHP_INSTANCE decltype(gemm_on<Cpu>) gemm_on<Cpu>;
DHP_INSTANCE decltype(cpu::serial_gemm<double>) cpu::serial_gemm<double>;
DHP_INSTANCE decltype(cpu::serial_gemm<float>) cpu::serial_gemm<float>;
// cpu/layer_norm
DHP_INSTANCE decltype(layer_norm_forward_on<Cpu>) layer_norm_forward_on<Cpu>;
DHP_INSTANCE decltype(layer_norm_backward_on<Cpu>) layer_norm_backward_on<Cpu>;
DHP_INSTANCE decltype(residual_layer_norm_forward_on<Cpu>) residual_layer_norm_forward_on<Cpu>;
DHP_INSTANCE decltype(residual_layer_norm_backward_on<Cpu>) residual_layer_norm_backward_on<Cpu>;
// cpu/optimizer
DHP_INSTANCE decltype(sgd_update_on<Cpu>) sgd_update_on<Cpu>;
DHP_INSTANCE decltype(adamw_update_on<Cpu>) adamw_update_on<Cpu>;
DHP_INSTANCE decltype(update_moving_averages_on<Cpu>) update_moving_averages_on<Cpu>;
DHP_INSTANCE decltype(lamb_squares_on<Cpu>) lamb_squares_on<Cpu>;
DHP_INSTANCE decltype(lamb_update_on<Cpu>) lamb_update_on<Cpu>;
DHP_INSTANCE decltype(lars_rates_on<Cpu>) lars_rates_on<Cpu>;
DHP_INSTANCE decltype(lamb_rates_on<Cpu>) lamb_rates_on<Cpu>;
// cpu/pool
DHP_INSTANCE decltype(max_pool_forward_on<Cpu>) max_pool_forward_on<Cpu>;
DHP_INSTANCE decltype(max_pool_backward_on<Cpu>) max_pool_backward_on<Cpu>;
DHP_INSTANCE decltype(global_average_pool_forward_on<Cpu>) global_average_pool_forward_on<Cpu>;
DHP_INSTANCE decltype(global_average_pool_backward_on<Cpu>) global_average_pool_backward_on<Cpu>;
// cpu/reduce
DHP_INSTANCE decltype(column_sums_on<Cpu>) column_sums_on<Cpu>;
DHP_INSTANCE decltype(sum_on<Cpu>) sum_on<Cpu>;
DHP_INSTANCE decltype(sum_of_squares_on<Cpu>) sum_of_squares_on<Cpu>;
DHP_INSTANCE decltype(sum_of_magnitudes_on<Cpu>) sum_of_magnitudes_on<Cpu>;
DHP_INSTANCE decltype(find_nonfinite_on<Cpu>) find_nonfinite_on<Cpu>;
// cpu/rows
DHP_INSTANCE decltype(copy_columns_on<Cpu>) copy_columns_on<Cpu>;
DHP_INSTANCE decltype(gather_rows_on<Cpu>) gather_rows_on<Cpu>;
DHP_INSTANCE decltype(scatter_add_rows_on<Cpu>) scatter_add_rows_on<Cpu>;
// cpu/segments
DHP_INSTANCE decltype(tile_squares_on<Cpu>) tile_squares_on<Cpu>;
DHP_INSTANCE decltype(sum_tiles_on<Cpu>) sum_tiles_on<Cpu>;
// cpu/step
DHP_INSTANCE decltype(decide_step_on<Cpu>) decide_step_on<Cpu>;
DHP_INSTANCE decltype(objective_scales_on<Cpu>) objective_scales_on<Cpu>;
// comm/reduce_slice
DHP_INSTANCE decltype(comm::reduce_slice_of<double>) comm::reduce_slice_of<double>;
DHP_INSTANCE decltype(comm::reduce_slice_of<float>) comm::reduce_slice_of<float>;
DHP_INSTANCE decltype(comm::reduce_slice_of<bf16>) comm::reduce_slice_of<bf16>;
DHP_INSTANCE decltype(comm::reduce_slice_of<f16>) comm::reduce_slice_of<f16>;
DHP_INSTANCE decltype(comm::reduce_slice_of<std::int32_t>) comm::reduce_slice_of<std::int32_t>;
DHP_INSTANCE decltype(comm::reduce_slice_of<std::int64_t>) comm::reduce_slice_of<std::int64_t>;
DHP_INSTANCE decltype(comm::reduce_slice_of<std::uint8_t>) comm::reduce_slice_of<std::uint8_t>;
// framework
DHP_INSTANCE class SegmentTable<Cpu>; DHP_INSTANCE class Tensor<Cpu>;
DHP_INSTANCE class TraceScope<Cpu>; DHP_INSTANCE class Comm<Cpu>; DHP_INSTANCE class Event<Cpu>;
DHP_INSTANCE class RankLauncher<Cpu>; DHP_INSTANCE class Mesh<Cpu>;
DHP_INSTANCE class CallChecking<Cpu>; DHP_INSTANCE class CallCounting<Cpu>;
DHP_INSTANCE class CommObserver<Cpu>; DHP_INSTANCE class CallTracing<Cpu>;
DHP_INSTANCE class Progress<Cpu>; DHP_INSTANCE class ActivationLayer<Cpu>;
DHP_INSTANCE class BatchNorm<Cpu>; DHP_INSTANCE class Conv2d<Cpu>;
DHP_INSTANCE class CrossEntropy<Cpu>; DHP_INSTANCE class ClassificationLoss<Cpu>;
DHP_INSTANCE class DropoutUse<Cpu>; DHP_INSTANCE class Dropout<Cpu>;
DHP_INSTANCE class Embedding<Cpu>; DHP_INSTANCE class FeedForward<Cpu>;
DHP_INSTANCE class AnyLayer<Cpu>; DHP_INSTANCE class LayerNormParameters<Cpu>;
DHP_INSTANCE class LayerNorm<Cpu>; DHP_INSTANCE class Linear<Cpu>; DHP_INSTANCE class AnyLoss<Cpu>;
DHP_INSTANCE class LowRank<Cpu>; DHP_INSTANCE class MeanSquaredError<Cpu>;
DHP_INSTANCE class Adapter<Cpu>; DHP_INSTANCE class ModelBuilder<Cpu>;
DHP_INSTANCE class ReplicaExchange<Cpu>; DHP_INSTANCE class ParameterStore<Cpu>;
DHP_INSTANCE class MaxPool<Cpu>; DHP_INSTANCE class GlobalAveragePool<Cpu>;
DHP_INSTANCE class Residual<Cpu>; DHP_INSTANCE class ResidualBatchNorm<Cpu>;
DHP_INSTANCE class ResidualLayerNorm<Cpu>; DHP_INSTANCE class SampleEmbeddings<Cpu>;
DHP_INSTANCE class SelfAttention<Cpu>; DHP_INSTANCE class Sequential<Cpu>;
DHP_INSTANCE class AdamW<Cpu>; DHP_INSTANCE class Lamb<Cpu>; DHP_INSTANCE class Lars<Cpu>;
DHP_INSTANCE class Norms<Cpu>; DHP_INSTANCE class Optimizer<Cpu>;
DHP_INSTANCE class BufferedOptimizer<Cpu>; DHP_INSTANCE class Sgd<Cpu>;
DHP_INSTANCE class GatherChannels<Cpu>; DHP_INSTANCE class ScatterChannels<Cpu>;
DHP_INSTANCE class DelayedReducer<Cpu>; DHP_INSTANCE class LocalSgdReducer<Cpu>;
DHP_INSTANCE class OneBitCompressor<Cpu>; DHP_INSTANCE class PipelineParallel<Cpu>;
DHP_INSTANCE class PowerSgdCompressor<Cpu>; DHP_INSTANCE class PlainReducer<Cpu>;
DHP_INSTANCE class BucketedReducer<Cpu>; DHP_INSTANCE class AnyReducer<Cpu>;
DHP_INSTANCE class SixteenBitCompressor<Cpu>; DHP_INSTANCE class RowParallelLinear<Cpu>;
DHP_INSTANCE class TopKCompressor<Cpu>; DHP_INSTANCE class Work<Cpu>; DHP_INSTANCE class Tape<Cpu>;
DHP_INSTANCE class TrainingRun<Cpu>; DHP_INSTANCE class InitialValues<Cpu>;
DHP_INSTANCE class ShardedBucket<Cpu>; DHP_INSTANCE class FusedValues<Cpu>;
DHP_INSTANCE class RunningStatistics<Cpu>; DHP_INSTANCE class BoundaryPredictor<Cpu>;
DHP_INSTANCE class TiedParameters<Cpu>; DHP_INSTANCE class ShardedReducer<Cpu>;
DHP_INSTANCE class StepRecorder<Cpu>; DHP_INSTANCE class StepCheck<Cpu>;
DHP_INSTANCE class StepVerifier<Cpu>; DHP_INSTANCE class ParameterState<Cpu>;
DHP_INSTANCE class DataParallel<Cpu, PipelineParallel<Cpu>>;
DHP_INSTANCE class DataParallel<Cpu, PipelineParallel<Cpu>, MakeReducer<Cpu>>;
DHP_INSTANCE class Trainer<Cpu, DataParallel<Cpu, PipelineParallel<Cpu>>>;
DHP_INSTANCE class Trainer<Cpu, DataParallel<Cpu, PipelineParallel<Cpu>, MakeReducer<Cpu>>>;
DHP_INSTANCE AnyReducer<Cpu> make_reducer(Cpu&, ParameterStore<Cpu>&, Comm<Cpu>,
                                          const ReducerChoice&);
DHP_INSTANCE std::unique_ptr<Optimizer<Cpu>> make_optimizer(Cpu&, ParameterStore<Cpu>&,
                                                            const Norms<Cpu>&,
                                                            const OptimizerChoice&);

}  // namespace dhp

#undef DHP_INSTANCE
