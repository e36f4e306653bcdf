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

TEST_CASE_TEMPLATE("scatter and gather undo each other", T, double, float, bf16) {
  ChannelCases<Gpu>::there_and_back<T>();
}

TEST_CASE_TEMPLATE("every replica has the gradient of the global mean", Options, Plain, Bucketed) {
  DataCases<Gpu>::global_mean<Options>();
}
TEST_CASE("gradients come out multiplied by the loss scale, losses do not") {
  DataCases<Gpu>::loss_scale();
}

TEST_CASE_TEMPLATE("reducers sum over replicas for any order of ready ranges", Options, Plain,
                   Bucketed) {
  ReducerCases<Gpu>::sums<Options>();
}
TEST_CASE("buckets start in one order for any order of ready ranges") {
  ReducerCases<Gpu>::one_order();
}
TEST_CASE("a bucket starts before the backward pass is over") { ReducerCases<Gpu>::early_start(); }
TEST_CASE_TEMPLATE("an exact sum that overflows on one replica becomes NaN on all", Options, Plain,
                   Bucketed) {
  ReducerCases<Gpu>::out_of_range<Options>();
}
TEST_CASE("compressing reducers: sent and remembered parts add up to the gradient") {
  for (const ReducerChoice& choice :
       {ReducerChoice(SixteenBit{}), ReducerChoice(TopK{.share = 0.05}),
        ReducerChoice(PowerSgd{.rank = 3}), ReducerChoice(OneBit{})})
    CompressedCases<Gpu>::conserves(choice, DType::f32, choice.index() == 2 ? 0.05 : 1e-5);
}

TEST_CASE("ZeRO: has the bits of the plain reducer") {
  auto settings = three_steps(true, DType::bf16);
  settings.optimizer = LambOptions{};
  settings.micro_batches = 3;
  settings.steps = 2;
  const Layout layout{{.data = 2}};
  const auto plain = ShardedCases<Gpu>::run_bert(layout, settings);
  for (const auto stage : zero_stages)
    check_same(plain, ShardedCases<Gpu>::run_bert(layout, with(stage, settings)));
}

TEST_CASE("tensor-parallel layers agree with the serial ones") { TensorCases<Gpu>::check_all(); }
TEST_CASE("tied weights: gradients are summed over stages, and one stage owns the weight") {
  TiedCases<Gpu>::sums();
  TiedCases<Gpu>::owners();
}
TEST_CASE("pipeline: known values and complete gradients") {
  PipelineCases<Gpu>::known_values();
  PipelineCases<Gpu>::complete_when_ready();
}
TEST_CASE("global loss: has the same bits in every layout") { GlobalLossCases<Gpu>::layouts(); }
TEST_CASE("trainer: names non-finite values, skips steps, scales losses and resumes runs") {
  TrainerCases<Gpu>::check_all();
}
TEST_CASE("step recorder: equal steps are recorded; a promised step with other shapes is refused") {
  StepRecorderCases<Gpu>::recorded();
  StepRecorderCases<Gpu>::promised_to_all();
}
