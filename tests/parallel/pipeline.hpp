// The pipeline: known values, and ready() once per range and step under every schedule. On any device.
#pragma once

#include <tests/support/everything.hpp>
#include <tests/support/layouts.hpp>
#include <tests/support/regression.hpp>

namespace tests {

inline const auto all_schedules = built_in_schedules();

template <class Dev>
class PipelineCases {
 public:
  // Linear layers with a single weight, 1, and no bias.
  static Model<Dev> chain(ModelBuilder<Dev>& build, int layers) {
    Model<Dev> model;
    for (int at = 0; at < layers; ++at)
      model.add(concat("linear", at), one_weight(build, concat("linear", at)));
    model.loss = MeanSquaredError<Dev>();
    return model;
  }

  // Runs body(dev, mesh, pipeline) on each of `stages` ranks.
  template <class MakeModel, class Body>
  static void on_stages(int stages, PipelineOptions options, MakeModel make_model, Body body) {
    on_ranks_of<Dev>(stages, [&](Dev& dev, Comm<Dev> world) {
      Mesh<Dev> mesh(std::move(world), {.pipeline = stages});
      ModelBuilder<Dev> build(Comm<Dev>{});
      PipelineParallel<Dev> pipeline(dev, make_model(build), mesh, options, one_and_zero(dev, 0),
                                     {.compute = DType::f64});
      body(dev, mesh, pipeline);
    });
  }

  static void known_values() {
    constexpr double lr = 0.125;
    for (const auto& kind : all_schedules)
      for (const int stages : {1, 2})
        for (const std::int64_t micro_batches : {1, 2, 3, 8}) {
          CAPTURE(kind.name());
          CAPTURE(stages);
          CAPTURE(micro_batches);
          const int chunks = kind.needed_chunks().value_or(1), layers = 2 * chunks;
          std::vector<double> weights(static_cast<std::size_t>(layers), 0);
          std::vector<double> losses(2, 0), norms_found(2, 0);
          on_stages(
              stages, {.schedule = kind, .chunks = chunks},
              [=](ModelBuilder<Dev>& build) { return chain(build, layers); },
              [&](Dev& dev, Mesh<Dev>& mesh, PipelineParallel<Dev>& pipeline) {
                Sgd<Dev> optimizer(dev, pipeline.store(), {.momentum = 0, .weight_decay = 0});
                Norms<Dev> norms(mesh.tensor(), mesh.pipeline(), pipeline.parameters_in_model());
                Trainer trainer(dev, pipeline, mesh, optimizer, norms,
                                {.learning_rate = {.peak = lr}});
                const auto at = static_cast<std::size_t>(mesh.pipeline_index());
                const auto report =
                    trainer.step(assigned<Dev>(ones_and_zeros(dev, micro_batches), 0, 1));
                losses[at] = report.loss;
                norms_found[at] = report.gradient_norm;
                for (const auto& parameter : pipeline.store().parameters())
                  weights[static_cast<std::size_t>(parameter->index)] =
                      widened(dev, parameter->value)[0];
              });
          CHECK(weights == std::vector<double>(weights.size(), 1 - 2 * lr));
          for (std::size_t stage = 0; stage < static_cast<std::size_t>(stages); ++stage) {
            CHECK(losses[stage] == 1);  // every stage has the loss
            CHECK(norms_found[stage] == Approx(2 * std::sqrt(layers)).epsilon(1e-14));
          }
        }
  }

  /// Checks ready() on each of `stages` ranks, for tied ranges, too.
  static void ready_once(int stages, const AnySchedule& kind, int chunks, int micro_batches,
                         const EverythingOptions& options) {
    on_ranks_of<Dev>(stages, [&](Dev& dev, Comm<Dev> world) {
      Mesh<Dev> mesh(std::move(world), {.pipeline = stages});
      ModelBuilder<Dev> build(Comm<Dev>{});
      PipelineParallel<Dev> pipeline(dev, everything(build, options), mesh,
                                     {.schedule = kind, .chunks = chunks},
                                     everything_batch(dev, 0, 0), {.compute = DType::f64});
      std::vector<MicroBatch<Dev>> batches;
      for (int k = 0; k < micro_batches; ++k) batches.push_back(everything_batch(dev, 0, k));
      for (std::uint32_t step = 1; step <= 2; ++step) {
        std::map<std::int64_t, int> times;
        pipeline.store().zero_gradients(dev);
        (void)pipeline.forward_backward(dev, {.batches = batches, .context = {.step = step}},
                                        nullptr, [&](Range range) { ++times[range.first]; });
        check(times.size() == pipeline.store().parameters().size(), "ready: ", times.size(),
              " ranges");
        for (const auto& parameter : pipeline.store().parameters())
          check(times[parameter->range.first] == 1, parameter->spec.name, " became ready ",
                times[parameter->range.first], " times");
      }
    });
  }

  static void complete_when_ready() {
    for (const auto& kind : all_schedules)
      for (const int stages : {1, 2})
        on_stages(
            stages, {.schedule = kind, .chunks = kind.needed_chunks().value_or(2)},
            [](ModelBuilder<Dev>& build) { return chain(build, 5); },
            [](Dev& dev, Mesh<Dev>&, PipelineParallel<Dev>& pipeline) {
              const auto batches = ones_and_zeros(dev, 3);
              (void)pipeline.forward_backward(dev, {.batches = batches}, nullptr, [&](Range range) {
                const double gradient = widened(dev, pipeline.store().gradients(range))[0];
                check(std::abs(gradient - 2) < 1e-12, "ready with a gradient of ", gradient);
              });
            });
  }

 private:
  static MicroBatch<Dev> one_and_zero(Dev& dev, std::int64_t k) {
    return regression_batch(k, Tensor<Dev>::from_host(dev, {1, 1}, std::vector<double>{1}),
                            Tensor<Dev>::zeros(dev, DType::f64, {1, 1}));
  }
  static std::vector<MicroBatch<Dev>> ones_and_zeros(Dev& dev, std::int64_t count) {
    std::vector<MicroBatch<Dev>> batches;
    for (std::int64_t k = 0; k < count; ++k) batches.push_back(one_and_zero(dev, k));
    return batches;
  }
};

}  // namespace tests
