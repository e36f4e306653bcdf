// What programs of a user's own get wrong at a training run: weights read too early, evaluated batch norms.
#include <dhp/cpu.hpp>
#include <dhp/nn/batch_norm.hpp>
#include <dhp/train/training_run.hpp>
#include <tests/support/device_ranks.hpp>
#include <tests/support/regression.hpp>

#include <chrono>
#include <thread>

namespace {

Sample wave(std::int64_t at) {
  return {.input = {0.1F * static_cast<float>(at), 1},
          .target = {std::sin(0.1F * static_cast<float>(at))}};
}
Model<Cpu> network(ModelBuilder<Cpu>& build) {
  Model<Cpu> model;
  model.add("first", Linear<Cpu>(build, "first", {.in = 2, .out = 8}));
  model.add("gelu", gelu<Cpu>());
  model.add("second", Linear<Cpu>(build, "second", {.in = 8, .out = 1}));
  model.loss = MeanSquaredError<Cpu>();
  return model;
}
TrainingOptions options_of(MeshShape layout) {
  return {.layout = layout, .store = {.compute = DType::f64, .seed = 5}};
}
MicroBatch<Cpu> example(Cpu& dev) { return example_batch(dev, FunctionSamples(12, wave), 2); }
std::vector<MicroBatch<Cpu>> all_batches(Cpu& dev) {
  Loader data(dev, FunctionSamples(12, wave), {.global_batch = 12, .micro_batch = 2});
  return std::move(data.next().batches);
}

/// Runs its layer in evaluation mode in every step.
struct Evaluated : ElementwiseLayer<Cpu> {
  explicit Evaluated(BatchNorm<Cpu> of) : norm(std::move(of)) {}
  Tensor<Cpu> forward(Cpu& dev, Tensor<Cpu> x, Tape<Cpu>& tape) {
    Tape<Cpu> inner({.mode = StepContext::Mode::eval}, &tape.batch());
    return norm.forward(dev, std::move(x), inner);
  }
  Tensor<Cpu> backward(Cpu&, Tensor<Cpu> dy, Tape<Cpu>&) { return dy; }
  void parameters(ParameterList<Cpu>& out) const { norm.parameters(out); }
  BatchNorm<Cpu> norm;
};

}  // namespace

TEST_CASE("training run: after a step of ZeRO 1 or 2, store() has the weights of all replicas") {
  for (const auto stage : {ZeroStage::optimizer, ZeroStage::gradients})
    on_ranks_of<Cpu>(2, [&](Cpu& dev, Comm<Cpu> world) {
      auto options = options_of({.data = 2});
      options.store.deterministic = true;
      const auto any = example(dev);
      TrainingRun whole(dev, world, options, network, any);
      options.store.sharding.stage = stage;
      TrainingRun run(dev, world, options, network, any);
      // Replica 0 has all shares of this small model, and is late.
      if (world.rank() == 0)
        run.trainer().before_update(
            [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
      (void)whole.step(all_batches(dev));
      (void)run.step(all_batches(dev));
      const auto expected = whole.store().pieces(), found = run.store().pieces();
      REQUIRE(found.size() == expected.size());
      for (std::size_t at = 0; at < found.size(); ++at) {
        const auto same = std::find_if(expected.begin(), expected.end(), [&](const auto& piece) {
          return piece.piece.name == found[at].piece.name;
        });
        REQUIRE(same != expected.end());
        CHECK(clone<Cpu>(dev, found[at].data).to_host<double>(dev) ==
              clone<Cpu>(dev, same->data).to_host<double>(dev));
      }
    });
}

TEST_CASE("training run: running statistics that get no values in a step are refused") {
  Cpu dev;
  TrainingRun run(
      dev, Comm<Cpu>{}, options_of({}),
      [](ModelBuilder<Cpu>& build) {
        auto model = network(build);
        model.add("norm", Evaluated(BatchNorm<Cpu>(build, "norm", {.channels = 1})));
        return model;
      },
      example(dev));
  (void)run.evaluate(all_batches(dev));
  CHECK(message_of([&] { (void)run.step(all_batches(dev)); }) ==
        "the running statistics norm.running_mean got no values in a step: their layer ran in "
        "evaluation mode, as a teacher does; give such layers a TrainingRun of their own, and its "
        "predictions to this one");
}
