// Compares the memory plan with the allocator's counts in a real run, and with ZeRO's formula.
#include <dhp/extra/all_training_options.hpp>
#include <dhp/train/memory_plan.hpp>
#include <examples/plan/model_work.hpp>
#include <tests/support/device_ranks.hpp>
#include <tests/support/everything.hpp>

#include <docs/site/playground/step_estimate.hpp>

namespace {

constexpr std::int64_t micro_batches = 8;

AllTrainingOptions options_of(MeshShape layout, ZeroStage stage, DType compute = DType::f32) {
  return {.layout = layout,
          .store = {.compute = compute, .sharding = {stage, 1 << 14}},
          .reducer = Bucketed{.bytes = 4096}};
}
template <class Dev>
MicroBatch<Dev> batch(Dev& dev, std::int64_t k) {
  return everything_batch(dev, 0, k, 64, everything_samples, true);
}
/// A context axis does not split convolutions, so there the model is a BERT, whose attention has the peak of memory.
template <class Dev>
Model<Dev> model_for(ModelBuilder<Dev>& build, bool recompute = false) {
  auto config = everything_config({.blocks = 2});
  config.hidden = 128;
  if (build.context.size() > 1) return examples::bert<Dev>(build, config);
  return everything<Dev>(build, {.recompute = recompute});
}
PlannedRun<AllTrainingOptions> planned(const AllTrainingOptions& options, bool recompute = false) {
  return {.options = options,
          .describe = [=](ModelBuilder<Meta>& build) { return model_for(build, recompute); },
          .batch = batch<Meta>,
          .micro_batches = micro_batches,
          .threads = true,
          .recomputes = recompute};
}

struct Counted {
  std::size_t at_rest = 0;
  std::size_t most = 0;
};
/// The counts of each stage in a real run, at the first replica, tensor rank and context rank.
std::vector<Counted> counted(const AllTrainingOptions& options) {
  const auto& layout = options.layout;
  std::vector<Counted> found(static_cast<std::size_t>(layout.pipeline));
  on_ranks_of<Cpu>(layout.size(), [&](Cpu& dev, Comm<Cpu> world) {
    TrainingRun<Cpu> run(
        dev, std::move(world), options,
        [](ModelBuilder<Cpu>& build) { return model_for<Cpu>(build); }, batch(dev, 0));
    auto& mesh = run.mesh();
    StepBatches<Cpu> mine;
    mine.micro_batches = micro_batches;
    mine.same_shapes = true;
    const auto share = part_of(micro_batches, layout.data, mesh.data_index());
    for (auto k = share.first; k < share.last; ++k) mine.batches.push_back(batch(dev, k));
    (void)run.step(mine);
    if (auto* replicas = run.replicas()) replicas->synchronize(dev);
    if (mesh.data_index() == 0 && mesh.tensor_index() == 0 && mesh.context_index() == 0)
      found[static_cast<std::size_t>(mesh.pipeline_index())] = {dev.memory().in_use_bytes(),
                                                                dev.memory().max_held_bytes()};
  });
  return found;
}

}  // namespace

TEST_CASE("memory plan: includes the error memory of compressing reducers") {
  for (const ReducerChoice& reducer : {ReducerChoice(SixteenBit{}), ReducerChoice(TopK{}),
                                       ReducerChoice(PowerSgd{}), ReducerChoice(OneBit{})}) {
    CAPTURE(reducer.index());
    auto options = options_of({.data = 2}, ZeroStage::none);
    const auto plain = plan_memory(planned(options), 0);
    options.reducer = reducer;
    const auto plan = plan_memory(planned(options), 0);
    CHECK(plan.at_rest > plain.at_rest + plan.gradients);
    CHECK(plan.at_rest == counted(options)[0].at_rest);
  }
}

TEST_CASE("memory plan: equals the allocator's counts of a run, at rest and at the peak") {
  using enum ZeroStage;
  using enum DType;
  for (const auto& [layout, stage, compute] :
       {std::tuple{MeshShape{}, none, bf16},
        {MeshShape{.data = 2, .tensor = 2}, none, f32},
        {MeshShape{.pipeline = 3}, none, bf16},
        {MeshShape{.data = 4}, optimizer, f32},
        {MeshShape{.data = 4}, optimizer, bf16},
        {MeshShape{.data = 4}, gradients, bf16},
        {MeshShape{.data = 4}, weights, f32},
        {MeshShape{.context = 4}, none, f32},
        {MeshShape{.tensor = 2, .context = 2}, weights, bf16},
        {MeshShape{.data = 2, .tensor = 2, .pipeline = 2}, weights, bf16}}) {
    const auto options = options_of(layout, stage, compute);
    const auto found = counted(options);
    for (int at = 0; at < layout.pipeline; ++at) {
      const auto plan = plan_memory(planned(options), at);
      const auto& real = found[static_cast<std::size_t>(at)];
      INFO("layout ", to_text(layout), " static_cast<int>(stage) ", static_cast<int>(stage));
      CAPTURE(at);
      CHECK(plan.at_rest == real.at_rest);
      // The number of messages that are not received yet depends on the speed of the ranks.
      const double apart = layout.context > 1 ? 1e-6 : 0.02;
      CHECK(static_cast<double>(plan.most) ==
            Approx(static_cast<double>(real.most)).epsilon(apart));
      // Process ranks keep the last four messages to each neighboring stage.
      const std::size_t neighbors = (at > 0 ? 1 : 0) + (at + 1 < layout.pipeline ? 1 : 0);
      auto processes = planned(options);
      processes.threads = false;
      CHECK(plan_memory(processes, at).at_rest == plan.at_rest + neighbors * 4 * 1024);
    }
  }
}

TEST_CASE("memory plan: counts activations of micro-batches in flight, fewer with recompute") {
  const auto options = options_of({.pipeline = 3}, ZeroStage::none);
  const auto first = plan_memory(planned(options), 0), last = plan_memory(planned(options), 2);
  CHECK(first.in_flight == 3);
  CHECK(last.in_flight == 1);
  CHECK(first.activations() > last.activations() * 3 / 2);
  const auto recomputed = plan_memory(planned(options, true), 0);
  CHECK(recomputed.weights == first.weights);
  CHECK(recomputed.activations() < first.activations() / 2);
  auto all = options;
  all.pipeline.schedule = GPipe{};
  CHECK(plan_memory(planned(all), 0).in_flight == micro_batches);
  CHECK(plan_memory(planned(all), 0).activations() > 2 * first.activations());
}

TEST_CASE("memory plan: knows when messages are received by stages of equal speed") {
  const auto taken = [](const AnySchedule& schedule, int stages, int stage, int count) {
    return detail::calls_until_received(all_stages(schedule, stages, count, 1), 1, stage, false);
  };
  using Calls = std::vector<int>;
  CHECK(taken(OneForwardOneBackward{}, 1, 0, 4) == Calls{});
  // Stage 0 runs F0 F1 B0 F2 B1 B2. Stage 1 takes the second message after its F0 and B0, while stage 0 waits in B0.
  CHECK(taken(OneForwardOneBackward{}, 2, 0, 3) == Calls{1, 2, 4});
  CHECK(taken(GPipe{}, 2, 0, 3) == Calls{1, 2, 3});
}

TEST_CASE("memory plan: a context axis sends keys and values around its ring in each layer") {
  constexpr double rows = everything_length * everything_samples,
                   bytes = 2 * 128 * 4;  // keys and values
  for (const int ranks : {2, 4}) {
    const auto work =
        examples::count_work(planned(options_of({.context = ranks}, ZeroStage::none)));
    const auto& attention = work.layers[1];
    CHECK(attention.forward.calls == ranks - 1);
    CHECK(attention.forward.sent_bytes == (ranks - 1) * rows / ranks * bytes);
    CHECK(attention.backward.sent_bytes == (2 * ranks - 1) * rows / ranks * bytes);
    const auto page = playground::estimate({.data = 1,
                                            .tensor = 1,
                                            .pipeline = 1,
                                            .context = ranks,
                                            .micro_batches = 1,
                                            .layers = 1,
                                            .boundary = rows * bytes / 2});
    CHECK(page.stages[0].sent.context ==
          attention.forward.sent_bytes + attention.backward.sent_bytes);
  }
}

TEST_CASE("memory plan: an impossible layout is refused with the run's own message") {
  CHECK_THROWS_WITH_AS((void)plan_memory(planned(options_of({.tensor = 16}, ZeroStage::none)), 0),
                       Contains("tensor axis"), Error);
}

TEST_CASE("memory plan: ZeRO's shares of BERT base exceed the formula by at most 2 %") {
  const auto config = examples::bert_preset("base");
  const auto describe = [&](ModelBuilder<Meta>& build) { return examples::bert(build, config); };
  ModelBuilder<Meta> build{Comm<Meta>{}};
  double count = 0;
  std::set<const void*> seen;  // the decoder and the embedding are one parameter
  for (const auto& parameter : describe(build).parameters())
    if (seen.insert(parameter.get()).second)
      count += static_cast<double>(parameter->spec.shape.count());
  CHECK(count == 110106428);
  for (const auto compute : {DType::f32, DType::bf16})
    for (const auto stage :
         {ZeroStage::none, ZeroStage::optimizer, ZeroStage::gradients, ZeroStage::weights}) {
      // Bytes per weight: the weight, its gradient, AdamW's two moments, and a master weight if it has 16 bits.
      const double state = compute == DType::f32 ? 8 : 12;
      const double each =
          examples::state_bytes(size_of(compute), 4, state, 4, static_cast<int>(stage)).sum();
      auto options = options_of({.data = 4}, stage, compute);
      options.store.sharding.bucket_bytes = 25 << 20;
      const auto plan = plan_memory(
          PlannedRun<AllTrainingOptions>{
              .options = options, .describe = describe, .batch = batch<Meta>, .micro_batches = 4},
          0);
      CAPTURE(static_cast<int>(stage));
      CHECK(static_cast<double>(plan.weights + plan.gradients + plan.optimizer) >= each * count);
      CHECK(static_cast<double>(plan.at_rest) <= 1.02 * each * count);
    }
}
