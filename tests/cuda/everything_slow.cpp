// A whole model on the GPU and on the Cpu: embeddings, attention, convolutions, norms, dropout, tied decoder, two loss
// terms. Compares losses, norms and weights after some steps.
#include <tests/cuda/all_ops.hpp>
#include <tests/cuda/gpu.hpp>
#include <tests/parallel/evaluation.hpp>
#include <tests/parallel/layouts.hpp>
#include <tests/parallel/pipeline.hpp>
#include <tests/train/checkpoint.hpp>

namespace {

RunSettings some_steps(DType compute,
                       OptimizerChoice optimizer = AdamWOptions{.weight_decay = 0.01}) {
  return {.compute = compute,
          .optimizer = std::move(optimizer),
          .steps = 2,
          .micro_batches = 2,
          .lr = 0.01};
}

/// fixed: each step has the same number of masked rows, so shapes stay.
template <class Dev>
RunResult train(Dev& dev, const RunSettings& settings, bool fixed = false) {
  return run_alone(
      dev, settings, [](ModelBuilder<Dev>& build) { return everything(build); },
      [=](Dev& any, int step, std::int64_t k) {
        return everything_batch(any, step, k, 64, everything_samples, fixed);
      });
}

/// Returns a device on which two runs have the same bits.
Gpu reproducible() {
#ifdef __CUDACC__
  return Gpu({.deterministic = true});
#else
  return {};
#endif
}

void compare(const RunResult& found, const RunResult& expected, double tolerance) {
  CHECK(relative_error(found.losses, expected.losses) < tolerance);
  CHECK(relative_error(found.norms, expected.norms) < 10 * tolerance);
  REQUIRE(found.values.size() == expected.values.size());
  for (const auto& [name, values] : expected.values) {
    CAPTURE(name);
    // The true gradient of a key's bias is zero. An optimizer may turn its rounding error into a step of either sign.
    if (name.ends_with("key.bias")) CHECK(distance(found.values.at(name), values) < 0.1);
    else CHECK(relative_error(found.values.at(name), values) < 10 * tolerance);
  }
}

}  // namespace

TEST_CASE("everything: training agrees with the Cpu in f64 and f32, for AdamW and LARS") {
  Gpu gpu;
  Cpu cpu;
  for (const auto& optimizer : {OptimizerChoice(AdamWOptions{.weight_decay = 0.01}),
                                OptimizerChoice(LarsOptions{.weight_decay = 0.01})}) {
    CAPTURE(optimizer.index());
    const auto wide = some_steps(DType::f64, optimizer), narrow = some_steps(DType::f32, optimizer);
    compare(train(gpu, wide), train(cpu, wide), 1e-9);
    compare(train(gpu, narrow), train(cpu, narrow), 1e-3);
  }
}

TEST_CASE("everything: 16-bit losses stay near f64, f16 with a dynamic loss scale") {
  Gpu gpu;
  Cpu cpu;
  const auto oracle = train(cpu, some_steps(DType::f64));
  CHECK(relative_error(train(gpu, some_steps(DType::bf16)).losses, oracle.losses) < 2e-2);
  auto scaled = some_steps(DType::f16);
  scaled.loss_scale = {.dynamic = true, .initial = 1024};
  CHECK(relative_error(train(gpu, scaled).losses, oracle.losses) < 5e-3);
}

TEST_CASE("everything: steps that are recorded give the same losses") {
  auto gpu = reproducible();
  // A recorded step reads dropout's step number and the learning rate from device memory. Steps are not recorded if
  // shapes change from step to step, as the number of masked rows may.
  for (const auto& [optimizer, fixed, steps] :
       {std::tuple(OptimizerChoice(AdamWOptions{.weight_decay = 0.01}), false, 3),
        {AdamWOptions{.weight_decay = 0.01}, true, 4},
        {LambOptions{}, true, 4}}) {
    INFO("optimizer ", optimizer.index(), " fixed ", fixed);
    auto settings = some_steps(DType::f32, optimizer);
    settings.micro_batches = 1;
    settings.steps = steps;
    const auto expected = train(gpu, settings, fixed);
    CHECK(expected.losses[2] != expected.losses[1]);
    settings.record = true;
    const auto found = train(gpu, settings, fixed);
    CHECK(expected.replayed == 0);
    CHECK(found.replayed == (fixed ? 3 : 0));  // all but the first are replayed
    CHECK(found.losses == expected.losses);
    CHECK(found.values == expected.values);
  }
#ifndef __CUDACC__
  CHECK(gpu.graphs_run == 6);
#endif
}

namespace {

// One block of everything and few steps, because emulated steps are slow.
const EverythingOptions one_block{.blocks = 1};
const RunSettings two_steps{.steps = 2, .micro_batches = 2};
const RunSettings one_micro_batch{.micro_batches = 1};

}  // namespace

TEST_CASE("everything: layouts of all axes give the serial run's numbers") {
  check_layouts<Gpu>(1e-9,
                     {{{.data = 2, .tensor = 2, .pipeline = 2}, ZeroBubble{}},
                      {{.pipeline = 2}, Interleaved{}, 2},
                      {{.pipeline = 2}, ZeroBubbleV{}, 2}},
                     two_steps, one_block, {.changing = true});
}

TEST_CASE("everything: exact sums give the same bits on two replicas of two stages") {
  auto settings = two_steps;
  settings.compute = DType::f32;
  settings.deterministic = true;
  check_layouts<Gpu>(0, {{{.data = 2, .pipeline = 2}}}, settings, one_block, {.changing = true});
}

TEST_CASE("ready() is called once per range and step, also for tied weights and empty steps") {
  PipelineCases<Gpu>::ready_once(2, ZeroBubble{}, 1, 1, one_block);
  PipelineCases<Gpu>::ready_once(2, Interleaved{}, 2, 0, one_block);
}

TEST_CASE("evaluation: all layouts give the same terms, without dropout, also for no batches") {
  EvaluationCases<Gpu> cases(one_block, one_micro_batch);
  const std::vector<Layout> split{{{.data = 2, .pipeline = 2}}};
  cases.same_terms(split);
  cases.drops_nothing();
  cases.nothing(split);
}

TEST_CASE("checkpoint: saved on 1x2x2 ranks, a run continues serially") {
  CheckpointCases<Gpu>(one_block, one_micro_batch)
      .other_layouts({{.tensor = 2, .pipeline = 2}}, {Layout{}}, 2);
}
TEST_CASE("checkpoint: on one rank a run continues with the same bits, also with bf16 weights") {
  CheckpointCases<Gpu>(one_block, one_micro_batch).same_bits(2);
}
