// The pipeline: known values, and ready() once per range and step under every schedule.
#include <dhp/nn/linear.hpp>
#include <dhp/nn/mean_squared_error.hpp>
#include <tests/support/everything.hpp>
#include <tests/support/layouts.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

using namespace dhp;
using namespace tests;

namespace {

constexpr ScheduleKind all_schedules[] = {ScheduleKind::gpipe,
                                          ScheduleKind::one_forward_one_backward,
                                          ScheduleKind::interleaved, ScheduleKind::zero_bubble};

// Linear layers 1 x 1 without bias, of weight 1.
Model<Cpu> chain(Build<Cpu>& build, int layers) {
  Model<Cpu> model;
  for (int at = 0; at < layers; ++at)
    model.add("linear" + std::to_string(at),
              Linear<Cpu>(build, "linear" + std::to_string(at),
                          {.in = 1, .out = 1, .bias = false, .weight_init = constant(1)}));
  model.loss = MeanSquaredError<Cpu>();
  return model;
}

MicroBatch<Cpu> one_and_zero(Cpu& dev, std::int64_t k) {
  MicroBatch<Cpu> batch;
  batch.index = k;
  batch.first_sample = k;
  batch.samples = 1;
  batch.input = Tensor<Cpu>::from_host(dev, {1, 1}, std::vector<double>{1});
  batch.side.emplace_back("targets", Tensor<Cpu>::zeros(dev, DType::f64, {1, 1}));
  batch.counts = {{"elements", 1}};
  return batch;
}

// Runs body(dev, mesh, pipeline) on each of `stages` ranks.
template <class MakeModel, class Body>
void on_stages(int stages, PipelineOptions options, MakeModel make_model, Body body) {
  options.store.compute = DType::f64;
  run_ranks(stages,
            [&](Comm<Cpu> world) {
              Cpu dev;
              Mesh<Cpu> mesh(std::move(world), {.pipeline = stages});
              Build<Cpu> build;
              build.compute = DType::f64;
              PipelineParallel<Cpu> pipeline(dev, make_model(build), mesh, options,
                                             one_and_zero(dev, 0));
              body(dev, mesh, pipeline);
            },
            {.timeout_s = 60});
}

}  // namespace

TEST_CASE("two stages of weight 1, input 1, target 0: one step of SGD leaves 1 - 2 lr") {
  constexpr double lr = 0.125;
  for (const auto kind : all_schedules)
    for (const int stages : {1, 2})
      for (const std::int64_t micro_batches : {1, 2, 3, 8}) {
        CAPTURE(name_of(kind));
        CAPTURE(stages);
        CAPTURE(micro_batches);
        std::vector<double> weights(2, 0);
        std::vector<double> losses(2, 0);
        on_stages(
            stages, {.schedule = kind}, [](Build<Cpu>& build) { return chain(build, 2); },
            [&](Cpu& dev, Mesh<Cpu>& mesh, PipelineParallel<Cpu>& pipeline) {
              Sgd<Cpu> optimizer(dev, pipeline.store(), {.momentum = 0, .weight_decay = 0});
              Norms<Cpu> norms(mesh.tensor(), mesh.pipeline(), pipeline.parameters_in_model());
              Trainer trainer(dev, pipeline, mesh, optimizer, norms,
                              {.learning_rate = {.peak = lr}});
              std::vector<MicroBatch<Cpu>> batches;
              for (std::int64_t k = 0; k < micro_batches; ++k)
                batches.push_back(one_and_zero(dev, k));
              losses[static_cast<std::size_t>(mesh.pipeline_index())] = trainer.step(batches).loss;
              for (const auto& parameter : pipeline.store().parameters())
                weights[static_cast<std::size_t>(parameter->index)] =
                    parameter->value.data<double>()[0];
            });
        CHECK(weights == std::vector<double>(2, 1 - 2 * lr));
        CHECK(losses.front() == 1);
        CHECK(losses[static_cast<std::size_t>(stages - 1)] == 1);  // every stage knows it
      }
}

TEST_CASE("ready() comes once per range and step, tied ones and empty steps included") {
  for (const auto kind : all_schedules)
    for (const int stages : {1, 2, 3})
      for (const int micro_batches : {0, 1, 2, 5})
        run_ranks(stages,
                  [&](Comm<Cpu> world) {
                    Cpu dev;
                    Mesh<Cpu> mesh(std::move(world), {.pipeline = stages});
                    Build<Cpu> build;
                    build.compute = DType::f64;
                    PipelineParallel<Cpu> pipeline(
                        dev, everything(build), mesh,
                        {.schedule = kind,
                         .chunks = kind == ScheduleKind::interleaved ? 3 : 1,
                         .store = {.compute = DType::f64}},
                        everything_batch(dev, 0, 0));
                    std::vector<MicroBatch<Cpu>> batches;
                    for (int k = 0; k < micro_batches; ++k)
                      batches.push_back(everything_batch(dev, 0, k));
                    for (std::uint32_t step = 0; step < 2; ++step) {
                      std::map<std::int64_t, int> times;
                      pipeline.store().zero_gradients(dev);
                      (void)pipeline.forward_backward(dev, {.batches = batches, .number = step},
                                                      [&](Range range) { ++times[range.first]; });
                      check(times.size() == pipeline.store().parameters().size(),
                            "ready: ", times.size(), " ranges");
                      for (const auto& parameter : pipeline.store().parameters())
                        check(times[parameter->range.first] == 1, parameter->spec.name,
                              " became ready ", times[parameter->range.first], " times");
                    }
                  },
                  {.timeout_s = 60});
}

TEST_CASE("when a range is ready its gradient is complete") {
  for (const auto kind : all_schedules)
    for (const int stages : {1, 2})
      on_stages(
          stages, {.schedule = kind, .chunks = kind == ScheduleKind::interleaved ? 2 : 1},
          [](Build<Cpu>& build) { return chain(build, 5); },
          [](Cpu& dev, Mesh<Cpu>&, PipelineParallel<Cpu>& pipeline) {
            std::vector<MicroBatch<Cpu>> batches;
            for (std::int64_t k = 0; k < 3; ++k) batches.push_back(one_and_zero(dev, k));
            (void)pipeline.forward_backward(dev, {.batches = batches}, [&](Range range) {
              const double gradient = pipeline.store().gradients(range).template data<double>()[0];
              check(std::abs(gradient - 2) < 1e-12, "ready with a gradient of ", gradient);
            });
          });
}

TEST_CASE("stages are cut by the costs that are given") {
  on_stages(
      2, {.costs = {1, 1, 1, 1, 4}}, [](Build<Cpu>& build) { return chain(build, 5); },
      [](Cpu&, Mesh<Cpu>&, PipelineParallel<Cpu>& pipeline) {
        CHECK(pipeline.cuts() == std::vector<std::int64_t>{0, 4, 5});
        CHECK(pipeline.parameters_in_model() == 5);
      });
  const auto refused = message_of([] {
    on_stages(
        2, {.costs = {1, 1}}, [](Build<Cpu>& build) { return chain(build, 5); },
        [](Cpu&, Mesh<Cpu>&, PipelineParallel<Cpu>&) {});
  });
  CHECK_MESSAGE(refused.find("2 costs were given for 5 layers") != refused.npos, refused);
}

TEST_CASE("two parameters of one name are refused, on one stage and on two") {
  for (const int stages : {1, 2}) {
    const auto message = message_of([&] {
      on_stages(
          stages, {},
          [](Build<Cpu>& build) {
            auto model = chain(build, 1);
            model.add("again", Linear<Cpu>(build, "linear0", {.in = 1, .out = 1, .bias = false}));
            return model;
          },
          [](Cpu&, Mesh<Cpu>&, PipelineParallel<Cpu>&) {});
    });
    CHECK_MESSAGE(
        message.find("the model has two parameters of the name linear0.weight") != message.npos,
        message);
  }
}

TEST_CASE("a layer whose output is not finite is named") {
  for (const int stages : {1, 2}) {
    const auto message = message_of([&] {
      on_stages(
          stages, {}, [](Build<Cpu>& build) { return chain(build, 4); },
          [](Cpu& dev, Mesh<Cpu>& mesh, PipelineParallel<Cpu>& pipeline) {
            Sgd<Cpu> optimizer(dev, pipeline.store(), {});
            Norms<Cpu> norms(mesh.tensor(), mesh.pipeline(), pipeline.parameters_in_model());
            Trainer trainer(dev, pipeline, mesh, optimizer, norms, {});
            for (const auto& parameter : pipeline.store().parameters())
              if (parameter->index == 2) fill(dev, parameter->value, HUGE_VAL);
            std::vector<MicroBatch<Cpu>> batches;
            for (std::int64_t k = 0; k < 2; ++k) batches.push_back(one_and_zero(dev, k));
            (void)trainer.step(batches);
          });
    });
    CHECK_MESSAGE(message.find("step 1: the loss is not finite") != message.npos, message);
    CHECK_MESSAGE(
        message.find("the output of layer linear2 is not finite (micro-batch 0)") != message.npos,
        message);
  }
}
