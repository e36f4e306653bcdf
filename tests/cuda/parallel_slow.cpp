// The tests of parallel/ and train/ on the GPU: data, tensor and pipeline parallelism, reducers, tied weights, the
// global loss, and the trainer. Weights and messages are in GPU memory.
#include <tests/cuda/all_ops.hpp>
#include <tests/cuda/gpu.hpp>
#include <tests/extra/compressed_reducer.hpp>
#include <tests/nn/channels.hpp>
#include <tests/nn/group_sum.hpp>
#include <tests/nn/loss.hpp>
#include <tests/parallel/data.hpp>
#include <tests/parallel/pipeline.hpp>
#include <tests/parallel/reducer.hpp>
#include <tests/parallel/sharded_reducer.hpp>
#include <tests/parallel/tied.hpp>
#include <tests/train/step_recorder.hpp>
#include <tests/train/trainer.hpp>

TEST_CASE_TEMPLATE("scattered and gathered channels are what they were", T, double, float, bf16) {
  ChannelCases<Gpu>::there_and_back<T>();
}

TEST_CASE_TEMPLATE("every replica has the gradient of the global mean", Options, Plain, Bucketed) {
  DataCases<Gpu>::global_mean<Options>();
}
TEST_CASE("gradients come out multiplied by the loss scale, losses do not") {
  DataCases<Gpu>::loss_scale();
}

TEST_CASE_TEMPLATE("reducers sum over replicas, whatever is ready first", Options, Plain,
                   Bucketed) {
  ReducerCases<Gpu>::sums<Options>();
}
TEST_CASE("buckets start in one order, whatever is ready first") { ReducerCases<Gpu>::one_order(); }
TEST_CASE("a bucket starts before the backward pass is over") { ReducerCases<Gpu>::early_start(); }
TEST_CASE_TEMPLATE("a sum that left its range on one replica is NaN on all", Options, Plain,
                   Bucketed) {
  ReducerCases<Gpu>::out_of_range<Options>();
}
TEST_CASE("reducers that compress: what is sent and what is remembered is all that there was") {
  for (const ReducerChoice& choice :
       {ReducerChoice(SixteenBit{}), ReducerChoice(TopK{.share = 0.05}),
        ReducerChoice(PowerSgd{.rank = 3}), ReducerChoice(OneBit{})})
    CompressedCases<Gpu>::conserves(choice, DType::f32, choice.index() == 2 ? 0.05 : 1e-5);
}

TEST_CASE("ZeRO: the bits of plain sums") {
  auto settings = three_steps(true, DType::bf16);
  settings.optimizer = LambOptions{};
  settings.micro_batches = 3;
  settings.steps = 2;
  const Layout layout{{.data = 2}};
  const auto plain = ShardedCases<Gpu>::run_bert(layout, settings);
  for (const auto stage : zero_stages)
    check_same(plain, ShardedCases<Gpu>::run_bert(layout, with(stage, settings)));
}

TEST_CASE("tensor-parallel layers") { TensorCases<Gpu>::check_all(); }
TEST_CASE("tied weights: gradients are summed over their stages, owners, norms") {
  TiedCases<Gpu>::sums();
  TiedCases<Gpu>::owners();
}
TEST_CASE("pipeline: known values, complete gradients, a bad layer is named") {
  PipelineCases<Gpu>::known_values();
  PipelineCases<Gpu>::complete_when_ready();
  PipelineCases<Gpu>::bad_layer();
}
TEST_CASE("global loss: the same bits in every layout") { GlobalLossCases<Gpu>::layouts(); }
TEST_CASE("trainer: what is not finite is named; skipped steps; loss scales; resumed runs") {
  TrainerCases<Gpu>::check_all();
}
TEST_CASE("step recorder: like steps are recorded; all ranks record what was promised, or refuse") {
  StepRecorderCases<Gpu>::recorded();
  StepRecorderCases<Gpu>::promised_to_all();
}
