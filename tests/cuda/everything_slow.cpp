// A whole model on the GPU beside the same on the Cpu: embeddings, attention, convolutions, norms, dropout,
// tied decoder, two loss terms, every optimizer; losses, norms and weights after some steps.
#include <tests/cuda/all_ops.hpp>
#include <tests/cuda/gpu.hpp>
#include <tests/parallel/evaluation.hpp>
#include <tests/parallel/layouts.hpp>
#include <tests/parallel/pipeline.hpp>
#include <tests/train/checkpoint.hpp>

namespace {

struct Settings {
  DType compute = DType::f32;
  std::string optimizer = "adamw";
  bool deterministic = false;
  bool record = false;
  int micro_batches = 2;
  bool fixed = false;  ///< as many masked rows in every step: then shapes stay
  LossScaleOptions loss_scale{};
  int steps = 2;
};
struct Found {
  std::vector<double> losses, norms;
  int recorded = 0;  ///< steps
  std::map<std::string, std::vector<double>> values;
};

template <class Dev>
std::unique_ptr<Optimizer<Dev>> make(Dev& dev, ParameterStore<Dev>& store, const Norms<Dev>& norms,
                                     const std::string& name) {
  if (name == "sgd")
    return std::make_unique<Sgd<Dev>>(dev, store, SgdOptions{.momentum = 0.9, .weight_decay = 0.1});
  if (name == "lars")
    return std::make_unique<Lars<Dev>>(dev, store, norms, LarsOptions{.weight_decay = 0.01});
  if (name == "lamb") return std::make_unique<Lamb<Dev>>(dev, store, norms, LambOptions{});
  return std::make_unique<AdamW<Dev>>(dev, store, AdamWOptions{.weight_decay = 0.01});
}

template <class Dev>
Found train(Dev& dev, const Settings& settings) {
  Mesh<Dev> mesh(Comm<Dev>(), {});
  ModelBuilder<Dev> build(Comm<Dev>{});
  PipelineParallel<Dev> pipeline(
      dev, everything(build), mesh, {}, everything_batch(dev, 0, 0),
      {.compute = settings.compute, .deterministic = settings.deterministic, .seed = 7});
  DataParallel<Dev, PipelineParallel<Dev>> model(dev, pipeline, mesh.data());
  Norms<Dev> norms({}, {}, pipeline.parameters_in_model());
  const auto optimizer = make(dev, pipeline.store(), norms, settings.optimizer);
  Trainer trainer(dev, model, mesh, *optimizer, norms,
                  {.learning_rate = {.peak = 0.01},
                   .clip = 1.0,
                   .loss_scale = settings.loss_scale,
                   .record = settings.record});
  Found found;
  for (int step = 0; step < settings.steps; ++step) {
    std::vector<MicroBatch<Dev>> batches;
    for (int k = 0; k < settings.micro_batches; ++k)
      batches.push_back(everything_batch(dev, step, k, 64, everything_samples, settings.fixed));
    const auto report = trainer.step(assigned<Dev>(batches, 0, 1));
    found.recorded += report.recorded ? 1 : 0;
    found.losses.push_back(report.loss);
    found.norms.push_back(report.gradient_norm);
  }
  for (const auto& parameter : pipeline.store().parameters()) {
    Tensor<Dev> wide(dev, DType::f64, parameter->value.shape());
    cast(dev, ConstView<Dev>(parameter->value), wide.mut());
    found.values[parameter->spec.name] = wide.template to_host<double>(dev);
  }
  return found;
}

/// Two runs on it give the same bits.
Gpu reproducible() {
#ifdef __CUDACC__
  return Gpu({.deterministic = true});
#else
  return {};
#endif
}

void compare(const Found& found, const Found& expected, double tolerance) {
  CHECK(relative_error(found.losses, expected.losses) < tolerance);
  CHECK(relative_error(found.norms, expected.norms) < 10 * tolerance);
  REQUIRE(found.values.size() == expected.values.size());
  for (const auto& [name, values] : expected.values) {
    CAPTURE(name);
    // The true gradient of a key's bias is zero: what an optimizer makes of its rounding is a step of any sign.
    if (name.ends_with("key.bias")) CHECK(distance(found.values.at(name), values) < 0.1);
    else CHECK(relative_error(found.values.at(name), values) < 10 * tolerance);
  }
}

}  // namespace

TEST_CASE("everything: the same run as on the Cpu, in double and in float, with every optimizer") {
  Gpu gpu;
  Cpu cpu;
  for (const auto* optimizer : {"sgd", "adamw", "lars", "lamb"}) {
    CAPTURE(optimizer);
    const auto oracle = train(cpu, {.compute = DType::f64, .optimizer = optimizer});
    compare(train(gpu, {.compute = DType::f64, .optimizer = optimizer}), oracle, 1e-9);
    compare(train(gpu, {.optimizer = optimizer}), train(cpu, {.optimizer = optimizer}), 1e-3);
  }
}

TEST_CASE("everything: 16 bits stay near double; f16 with a dynamic loss scale") {
  Gpu gpu;
  Cpu cpu;
  const auto oracle = train(cpu, {.compute = DType::f64});
  CHECK(relative_error(train(gpu, {.compute = DType::bf16}).losses, oracle.losses) < 2e-2);
  CHECK(relative_error(
            train(gpu, {.compute = DType::f16, .loss_scale = {.dynamic = true, .initial = 1024}})
                .losses,
            oracle.losses) < 5e-3);
}

TEST_CASE("everything: steps that are recorded give the same losses") {
  auto gpu = reproducible();
  // Where shapes change from step to step, as those of masked rows may, steps are run as they are.
  const auto varying = train(gpu, {.record = true, .micro_batches = 1, .steps = 3});
  CHECK(varying.recorded == 0);
  CHECK(varying.losses == train(gpu, {.micro_batches = 1, .steps = 3}).losses);
  // Dropout goes by the number of the step, and rates by the state: both are read by the recorded step.
  for (const auto* optimizer : {"adamw", "lamb"}) {
    CAPTURE(optimizer);
    const Settings plain{.optimizer = optimizer, .micro_batches = 1, .fixed = true, .steps = 4};
    auto recorded = plain;
    recorded.record = true;
    const auto expected = train(gpu, plain);
    CHECK(expected.losses[2] != expected.losses[1]);
    const auto found = train(gpu, recorded);
    CHECK(expected.recorded == 0);
    CHECK(found.recorded == 3);  // all but the first
    CHECK(found.losses == expected.losses);
    CHECK(found.values == expected.values);
  }
#ifndef __CUDACC__
  CHECK(gpu.graphs_run == 6);
#endif
}

namespace {

// One block of everything, in few steps: emulated, each takes its time.
const EverythingOptions one_block{.blocks = 1};
const RunSettings two_steps{.steps = 2, .micro_batches = 2};
const RunSettings one_micro_batch{.micro_batches = 1};

RunResult run(const Layout& layout, const RunSettings& settings) {
  return run_layout<Gpu>(
      layout, settings, [](ModelBuilder<Gpu>& build) { return everything(build, one_block); },
      [](Gpu& dev, int step, std::int64_t k) { return everything_batch(dev, step, k); });
}

}  // namespace

TEST_CASE("everything: every axis split gives the serial run's numbers") {
  const auto serial = run({}, two_steps);
  for (const auto& layout : {Layout{{.data = 2, .tensor = 2, .pipeline = 2}, ZeroBubble{}},
                             Layout{{.pipeline = 2}, Interleaved{}, 2}}) {
    CAPTURE(to_text(layout));
    check_close(serial, run(layout, two_steps), 1e-9);
  }
}

TEST_CASE("everything: exact sums, the same bits on two replicas of two stages") {
  auto settings = two_steps;
  settings.compute = DType::f32;
  settings.deterministic = true;
  check_same_bits(run({}, settings), run({{.data = 2, .pipeline = 2}}, settings));
}

TEST_CASE("ready() comes once per range and step, tied ones and empty steps included") {
  PipelineCases<Gpu>::ready_once(2, ZeroBubble{}, 1, 1, one_block);
  PipelineCases<Gpu>::ready_once(2, Interleaved{}, 2, 0, one_block);
}

TEST_CASE("evaluation: the same terms in every layout, nothing dropped, nothing of nothing") {
  EvaluationCases<Gpu> cases(one_block, one_micro_batch);
  const std::vector<Layout> split{{{.data = 2, .pipeline = 2}}};
  cases.same_terms(split);
  cases.drops_nothing();
  cases.nothing(split);
}

TEST_CASE("checkpoint: saved on 1x2x2 ranks, goes on serially as one run") {
  CheckpointCases<Gpu>(one_block, one_micro_batch)
      .other_layouts({{.tensor = 2, .pipeline = 2}}, {Layout{}}, 2);
}
TEST_CASE("checkpoint: on one rank the same bits, also with bf16 weights and their masters") {
  CheckpointCases<Gpu>(one_block, one_micro_batch).same_bits(2);
}
