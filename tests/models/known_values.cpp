// One step of training worked out by hand: for linears of width 1 and weight 1, target 0 and the squared
// error, each weight's gradient is twice the mean square of the inputs.
#include <dhp/comm/launch.hpp>
#include <dhp/comm/mesh.hpp>
#include <dhp/cpu.hpp>
#include <dhp/nn/linear.hpp>
#include <dhp/nn/mean_squared_error.hpp>
#include <dhp/optim/sgd.hpp>
#include <dhp/parallel/data.hpp>
#include <dhp/parallel/pipeline.hpp>
#include <dhp/train/trainer.hpp>
#include <tests/support/test.hpp>

namespace {

struct Layout {
  MeshShape mesh;
  AnySchedule schedule = OneForwardOneBackward{};
  int chunks = 1;
};
const Layout layouts[] = {
    {{}},
    {{.pipeline = 2}, GPipe{}},
    {{.pipeline = 2}, OneForwardOneBackward{}},
    {{.pipeline = 2}, ZeroBubble{}},
    {{.pipeline = 2}, Interleaved{}, 2},
    {{.data = 2, .pipeline = 2}, OneForwardOneBackward{}},
    {{.data = 3}},
};

/// The samples of each micro-batch of the step, all with target 0.
using Inputs = std::vector<std::vector<double>>;

struct Outcome {
  double loss = 0;
  double gradient_norm = 0;
  std::vector<double> weights;
};

MicroBatch<Cpu> micro_batch(Cpu& dev, const Inputs& inputs, std::int64_t index) {
  const auto& samples = inputs[static_cast<std::size_t>(index)];
  const auto count = static_cast<std::int64_t>(samples.size());
  MicroBatch<Cpu> batch;
  batch.index = index;
  batch.samples = count;
  batch.input = Tensor<Cpu>::from_host(dev, {count, 1}, samples);
  batch.side.emplace_back("targets", Tensor<Cpu>::zeros(dev, DType::f64, {count, 1}));
  batch.counts = {{"elements", count}};
  return batch;
}

/// One step of plain SGD; one linear for each part of the pipeline, at least two.
Outcome one_step(const Layout& layout, const Inputs& inputs, double lr) {
  Outcome outcome;
  std::mutex mutex;
  run_ranks(layout.mesh.size(), [&](Comm<Cpu> world) {
    Cpu dev({.threads = 1});
    Mesh<Cpu> mesh(std::move(world), layout.mesh);
    ModelBuilder<Cpu> build(Comm<Cpu>{});
    Model<Cpu> model;
    for (int at = 0; at < 2 * layout.chunks; ++at) {
      const auto name = concat("linear", at);
      const LinearOptions options{.in = 1, .out = 1, .bias = false, .weight_init = constant(1)};
      model.add(name, Linear<Cpu>(build, name, options));
    }
    model.loss = MeanSquaredError<Cpu>();
    PipelineParallel<Cpu> pipeline(dev, std::move(model), mesh,
                                   {.schedule = layout.schedule, .chunks = layout.chunks},
                                   micro_batch(dev, inputs, 0), {.compute = DType::f64});
    DataParallel replicas(dev, pipeline, mesh.data(), Plain{});
    Sgd<Cpu> optimizer(dev, pipeline.store(), {});
    Norms<Cpu> norms(mesh.tensor(), mesh.pipeline(), pipeline.parameters_in_model());
    Trainer trainer(dev, replicas, mesh, optimizer, norms, {.learning_rate = {.peak = lr}});

    std::vector<MicroBatch<Cpu>> all;
    for (std::size_t index = 0; index < inputs.size(); ++index)
      all.push_back(micro_batch(dev, inputs, static_cast<std::int64_t>(index)));
    const auto report = trainer.step(assigned<Cpu>(all, mesh.data().rank(), mesh.data().size()));
    const std::lock_guard lock(mutex);
    outcome.loss = report.loss;
    outcome.gradient_norm = report.gradient_norm;
    for (const auto& parameter : pipeline.store().parameters())
      outcome.weights.push_back(*parameter->value.data<double>());
  });
  return outcome;
}

}  // namespace

TEST_CASE("each weight's gradient is twice the mean square of all samples, in every layout") {
  constexpr double lr = 0.01;
  // The mean square is 13 / 4; a mean of means would be 5 / 2.
  std::vector<std::pair<Inputs, double>> steps{{{{1}, {2, 2, 2}}, 3.25}};
  for (const std::size_t micro_batches : {1, 2, 3, 4, 7, 8})
    steps.push_back({Inputs(micro_batches, {1.0, 1.0}), 1});
  for (const auto& layout : layouts)
    for (const auto& [inputs, mean] : steps) {
      CAPTURE(to_text(layout.mesh));
      INFO("layout.schedule.name() ", layout.schedule.name(), " inputs.size() ", inputs.size());
      const auto found = one_step(layout, inputs, lr);
      const auto linears = static_cast<std::size_t>(2 * layout.chunks);
      const double norm = 2 * mean * std::sqrt(static_cast<double>(linears));
      CHECK(found.loss == Approx(mean).epsilon(1e-14));
      CHECK(found.gradient_norm == Approx(norm).epsilon(1e-14));
      CHECK(found.weights.size() == linears * static_cast<std::size_t>(layout.mesh.data));
      for (const double weight : found.weights)
        CHECK(weight == Approx(1 - lr * 2 * mean).epsilon(1e-14));
    }
}
