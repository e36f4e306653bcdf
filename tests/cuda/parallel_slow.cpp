// The cases of parallel/ and train/ on the GPU: data, tensor and pipeline parallelism, reducers, tied weights, the
// global loss and the trainer, over weights and messages that lie there.
#include <tests/cuda/all_ops.hpp>
#include <tests/cuda/gpu.hpp>
#include <tests/nn/global_loss.hpp>
#include <tests/parallel/channels.hpp>
#include <tests/parallel/data.hpp>
#include <tests/parallel/pipeline.hpp>
#include <tests/parallel/reducer.hpp>
#include <tests/parallel/tensor.hpp>
#include <tests/parallel/tied.hpp>
#include <tests/train/step_recorder.hpp>
#include <tests/train/trainer.hpp>

using namespace tests;

TEST_CASE_TEMPLATE("scattered and gathered channels are what they were", T, double, float, bf16) {
  ChannelCases<Gpu>::there_and_back<T>();
}

TEST_CASE_TEMPLATE("every replica has the gradient of the global mean", Options, Plain, Bucketed) {
  DataCases<Gpu>::global_mean<Options>();
}
TEST_CASE("gradients come out multiplied by the loss scale, losses do not") {
  DataCases<Gpu>::loss_scale();
}

TEST_CASE_TEMPLATE("reducers sum over replicas, whatever is ready first", Options, Plain, Bucketed,
                   ReducerChoice) {
  ReducerCases<Gpu>::sums<Options>();
}
TEST_CASE("buckets start in one order, whatever is ready first") { ReducerCases<Gpu>::one_order(); }
TEST_CASE("a bucket starts before the backward pass is over") { ReducerCases<Gpu>::early_start(); }
TEST_CASE_TEMPLATE("a sum that left its range on one replica is NaN on all", Options, Plain,
                   Bucketed, ReducerChoice) {
  ReducerCases<Gpu>::out_of_range<Options>();
}

TEST_CASE("column-parallel linear") { TensorCases<Gpu>::column_parallel(); }
TEST_CASE("row-parallel linear adds its bias once") { TensorCases<Gpu>::row_parallel(); }
TEST_CASE("column-parallel, activation, row-parallel") { TensorCases<Gpu>::column_and_row(); }
TEST_CASE("a feed-forward pair") { TensorCases<Gpu>::feed_forward(); }
TEST_CASE("vocabulary-parallel embedding") { TensorCases<Gpu>::embedding(); }
TEST_CASE("a split bias") { TensorCases<Gpu>::bias(); }
TEST_CASE("convolutions split by output and by input channels") {
  TensorCases<Gpu>::convolutions();
}

TEST_CASE("tied weights: gradients are summed over the stages that use them, once ready each") {
  TiedCases<Gpu>::sums();
}
TEST_CASE("tied weights: the first stage owns them, all start alike, norms count them once") {
  TiedCases<Gpu>::owners();
}

TEST_CASE("two stages of weight 1, input 1, target 0: one step of SGD leaves 1 - 2 lr") {
  PipelineCases<Gpu>::known_values();
}
TEST_CASE("when a range is ready its gradient is complete") {
  PipelineCases<Gpu>::complete_when_ready();
}
TEST_CASE("a layer whose output is not finite is named") { PipelineCases<Gpu>::bad_layer(); }

TEST_CASE("global loss: the same bits in every layout") { GlobalLossCases<Gpu>::layouts(); }

TEST_CASE(
    "trainer: a loss that is not finite ends with step, rank, micro-batch and the first layer") {
  TrainerCases<Gpu>::bad_loss();
}
TEST_CASE("trainer: a loss that overflows behind finite outputs is told from a bad layer") {
  TrainerCases<Gpu>::overflow_of_the_loss();
}
TEST_CASE("trainer: a gradient that is not finite, behind a finite loss, is named with its layer") {
  TrainerCases<Gpu>::bad_gradient();
}
TEST_CASE("trainer: under a dynamic loss scale an overflow is a step without an update") {
  TrainerCases<Gpu>::skipped_step();
}
TEST_CASE("trainer: a loss that stays bad at the least scale is not the scale's fault") {
  TrainerCases<Gpu>::bad_at_the_least_scale();
}
TEST_CASE("trainer: the loss scale changes neither the loss nor the norm nor the step") {
  TrainerCases<Gpu>::loss_scale_changes_nothing();
}
TEST_CASE("trainer: resumes with the step that comes next") { TrainerCases<Gpu>::resumed(); }
TEST_CASE("trainer: resumed between two changes of the loss scale, it grows at the same step") {
  TrainerCases<Gpu>::resumed_between_scales();
}

TEST_CASE("step recorder: a step like the one before is recorded, and run again without the host") {
  StepRecorderCases<Gpu>::recorded();
}
TEST_CASE("step recorder: what was promised to all ranks is recorded by all, or refused") {
  StepRecorderCases<Gpu>::promised_to_all();
}
