// The trainer: numbers that are not finite, skipped steps, resuming. On any device.
#pragma once

#include <dhp/nn/activation.hpp>
#include <dhp/optim/sgd.hpp>
#include <dhp/parallel/data.hpp>
#include <dhp/parallel/pipeline.hpp>
#include <dhp/train/trainer.hpp>
#include <tests/support/device_ranks.hpp>
#include <tests/support/regression.hpp>

namespace tests {

template <class Dev>
class TrainerCases {
 public:
  static void check_all() {
    for (const auto check :
         {bad_loss, overflow_of_the_loss, bad_target, bad_gradient, skipped_step, skipped_spike,
          bad_at_the_least_scale, loss_scale_changes_nothing, resumed, resumed_between_scales,
          scale_after_a_constant_one, after_a_failed_step, different_batches})
      check();
  }

 private:
  /// A loss that is not finite ends the run with an error that names step, rank, micro-batch and the first bad layer.
  static void bad_loss() {
    const Case serial{};
    const auto message = message_with(serial, std::numeric_limits<float>::quiet_NaN());
    CHECK(has(message, "step 2: the loss is not finite"));
    CHECK(has(message, "the output of layer first is not finite (micro-batch 2)"));

    // Ranks by (pipeline, data): the second replica's first stage is rank 1.
    for (const auto& schedule : built_in_schedules()) {
      if (schedule.needed_chunks().value_or(1) > 1)
        continue;  // the model has too few layers for more chunks
      const Case split{.mesh = {.data = 2, .pipeline = 3}, .schedule = schedule};
      const auto infinite = message_with(split, std::numeric_limits<float>::infinity());
      CAPTURE(infinite);
      CHECK(has(infinite, "step 2: the loss is not finite"));
      CHECK(has(infinite, "the output of layer first is not finite (micro-batch 2) on rank 1"));
    }
  }

  /// If all outputs are finite, the error says that the loss itself overflowed.
  static void overflow_of_the_loss() {
    const auto message = message_of([] {
      on_ranks({.compute = DType::f64},
               [](Dev& dev, Trained& trainer, Batches& batches, const auto&) {
                 // The square of this target is infinite.
                 set_element(dev, batches.batches[1].side[0].second.mut(), 0, 1e300);
                 (void)trainer.step(batches);
               });
    });
    CHECK(has(message, "step 1: the loss is not finite (inf)"));
    CHECK(has(message, "the loss itself overflowed"));
  }

  /// A bad target is the loss's own trouble, not that of the layer before it.
  static void bad_target() {
    const auto message = message_of([] {
      on_ranks({}, [](Dev& dev, Trained& trainer, Batches& batches, const auto&) {
        set_element(dev, batches.batches[1].side[0].second.mut(), 0,
                    std::numeric_limits<float>::quiet_NaN());
        (void)trainer.step(batches);
      });
    });
    CHECK(has(message, "the input gradient of layer loss is not finite (micro-batch 1)"));
  }

  /// If the loss is finite but the gradient is not, the error names the gradient's layer.
  static void bad_gradient() {
    const auto message = message_of([] {
      on_ranks({}, [](Dev& dev, Trained& trainer, Batches& batches,
                      const ParameterList<Dev>& parameters) {
        // Outputs are about 1e19: their squares are finite, but an input gradient (output times weight) overflows.
        const auto set = [&](const std::string& name, double value) {
          for (const auto& parameter : parameters)
            if (parameter->spec.name == name) fill(dev, parameter->value, value);
        };
        set("first.weight", 0);
        set("first.bias", 1e-3);
        set("last.weight", 3e21);
        (void)trainer.step(batches);
      });
    });
    CHECK(has(message, "step 1: the loss is finite but the gradient is not"));
    CHECK(has(message, "the input gradient of layer last is not finite (micro-batch 0)"));
  }

  /// With a dynamic loss scale, an overflow skips the update of the step.
  static void skipped_step() {
    const Case run{.options = {.learning_rate = {.peak = 0.1},
                               .loss_scale = LossScaleOptions{.dynamic = true, .initial = 1024}}};
    on_ranks(run, [](Dev& dev, Trained& trainer, Batches& batches,
                     const ParameterList<Dev>& parameters) {
      const auto input = [&] { return batches.batches[0].input.mut(); };
      const double start = first_of(dev, parameters);
      const auto kept = static_cast<float>(widened(dev, input())[0]);
      set_element(dev, input(), 0, std::numeric_limits<float>::infinity());
      const auto skipped = trainer.step(batches);
      CHECK(skipped.skipped);
      CHECK(skipped.loss_scale == 1024);
      CHECK(first_of(dev, parameters) == start);
      set_element(dev, input(), 0, kept);
      const auto good = trainer.step(batches);
      CHECK(!good.skipped);
      CHECK(good.step == 2);
      CHECK(good.loss_scale == 512);
      CHECK(first_of(dev, parameters) != start);
      const auto state = trainer.state();
      CHECK(state.step == 2);
      CHECK(state.device.updates == 1);
      CHECK(state.device.loss_scale == 512);
      CHECK(state.device.good_steps == 1);
    });
  }

  /// A step whose gradient norm is far above the usual one is skipped, also in a resumed run.
  static void skipped_spike() {
    const Case run{.options = {.learning_rate = {.peak = 1e-3}, .spike = 5}};
    on_ranks(run, [](Dev& dev, Trained& trainer, Batches& batches,
                     const ParameterList<Dev>& parameters) {
      for (int step = 0; step < 25; ++step) CHECK(!trainer.step(batches).skipped);
      const double before = first_of(dev, parameters);
      auto input = batches.batches[0].input.mut();
      scale(dev, 1024.0, input);
      const auto spike = trainer.step(batches);
      CHECK(spike.spike);
      CHECK(spike.gradient_norm > 5 * spike.usual_norm);
      CHECK(first_of(dev, parameters) == before);
      const auto state = trainer.state();
      CHECK(state.device.updates == 25);
      CHECK(state.device.spikes == 1);
      CHECK(state.device.usual_norm == spike.usual_norm);
      trainer.resume_after(state);
      CHECK(trainer.step(batches).spike);  // the state keeps the usual norm
      scale(dev, 1 / 1024.0, input);
      CHECK(!trainer.step(batches).skipped);
      CHECK(first_of(dev, parameters) != before);
    });
  }

  /// If the loss is still bad at the smallest loss scale, the run ends with an error.
  static void bad_at_the_least_scale() {
    const Case run{.options = {.loss_scale = LossScaleOptions{.dynamic = true, .initial = 4}}};
    int skipped = 0;
    const auto message = message_of([&] {
      on_ranks(run, [&](Dev& dev, Trained& trainer, Batches& batches, const auto&) {
        set_element(dev, batches.batches[3].input.mut(), 0,
                    std::numeric_limits<float>::quiet_NaN());
        while (skipped < 10 && trainer.step(batches).skipped) ++skipped;
      });
    });
    CHECK(skipped == 2);  // at 4 and at 2
    CHECK(has(message, "step 3: the loss is not finite (nan)"));
    CHECK(has(message, "layer first is not finite (micro-batch 3)"));
  }

  /// The loss scale changes neither the loss nor the gradient norm nor the update.
  static void loss_scale_changes_nothing() {
    const auto train = [](double scale) {
      std::vector<double> found;
      Case run{.options = {.learning_rate = {.peak = 0.1}, .clip = 0.05}};
      run.options.loss_scale = LossScaleOptions{.dynamic = true, .initial = scale};
      on_ranks(run, [&](Dev& dev, Trained& trainer, Batches& batches,
                        const ParameterList<Dev>& parameters) {
        for (int step = 0; step < 3; ++step) {
          const auto report = trainer.step(batches);
          found.insert(found.end(), {report.loss, report.gradient_norm});
        }
        found.push_back(first_of(dev, parameters));
      });
      return found;
    };
    const auto plain = train(1);
    CHECK(plain[1] > 0.05);       // gradients are clipped
    CHECK(train(4096) == plain);  // a power of two changes no bit
  }

  /// A resumed run continues with the next step and its learning rate.
  static void resumed() {
    const Case run{.options = {.learning_rate = {.peak = 0.1, .warmup_steps = 10}}};
    on_ranks(run, [](Dev&, Trained& trainer, Batches& batches, const auto&) {
      trainer.resume_after({.step = 4, .device = {.updates = 4}});
      CHECK(trainer.steps_started() == 4);
      const auto report = trainer.step(batches);
      CHECK(report.step == 5);
      CHECK(report.learning_rate == Approx(0.05));
    });
  }

  /// In a run that is resumed between two changes of the loss scale, the scale grows at the same step.
  static void resumed_between_scales() {
    const Case run{.options = {.learning_rate = {.peak = 0.1},
                               .loss_scale = LossScaleOptions{
                                   .dynamic = true, .initial = 64, .growth_interval = 3}}};
    const auto scales = [&](const RunState& from, int steps) {
      std::vector<double> found;
      RunState reached;
      on_ranks(run, [&](Dev&, Trained& trainer, Batches& batches, const auto&) {
        trainer.resume_after(from);
        for (int step = 0; step < steps; ++step) found.push_back(trainer.step(batches).loss_scale);
        reached = trainer.state();
      });
      return std::pair(found, reached);
    };
    const auto [straight, end] = scales({}, 7);
    CHECK(straight == std::vector<double>{64, 64, 64, 128, 128, 128, 256});
    const auto [first, middle] = scales({}, 5);
    const auto [rest, other_end] = scales(middle, 2);
    CHECK(rest == std::vector<double>{128, 256});
    CHECK(other_end.device.updates == end.device.updates);
    CHECK(other_end.device.good_steps == end.device.good_steps);
  }

  /// A dynamic loss scale begins anew after a run with a constant one.
  static void scale_after_a_constant_one() {
    const LossScaleOptions constant{.initial = 2}, dynamic{.dynamic = true, .initial = 64};
    RunState reached;
    on_ranks({.options = {.loss_scale = constant}},
             [&](Dev&, Trained& trainer, Batches& batches, const auto&) {
               (void)trainer.step(batches);
               reached = trainer.state();
             });
    on_ranks({.options = {.loss_scale = dynamic}},
             [&](Dev&, Trained& trainer, Batches& batches, const auto&) {
               trainer.resume_after(reached);
               CHECK(trainer.step(batches).loss_scale == 64);
             });
  }

  /// After a failed step, every step throws an error that names it, until a state is resumed.
  static void after_a_failed_step() {
    on_ranks({.compute = DType::f64},
             [](Dev& dev, Trained& trainer, Batches& batches, const auto&) {
               const auto good = trainer.state();
               set_element(dev, batches.batches[0].side[0].second.mut(), 0,
                           std::numeric_limits<double>::quiet_NaN());
               CHECK(has(message_of([&] { (void)trainer.step(batches); }),
                         "step 1: the loss is not finite"));
               set_element(dev, batches.batches[0].side[0].second.mut(), 0, 1.0);
               CHECK(has(message_of([&] { (void)trainer.step(batches); }),
                         "step 1 has failed, and no later step changes anything"));
               trainer.resume_after(good);
               CHECK(trainer.step(batches).step == 1);
             });
  }

  /// The ranks of a replica have the same micro-batches; if not, the first step says so.
  static void different_batches() {
    for (const auto mesh : {MeshShape{.data = 2, .tensor = 2}, {.data = 2, .pipeline = 2}})
      for (const bool differ : {false, true}) {
        std::atomic<int> ranks{0};
        const auto message = message_of([&] {
          on_ranks({.mesh = mesh}, [&](Dev& dev, Trained& trainer, Batches& batches, const auto&) {
            auto& batch = batches.batches[1];
            auto& changed = mesh.tensor > 1 ? batch.input : batch.side[0].second;
            if (differ && ranks++ == 0) set_element(dev, changed.mut(), 3, 7.0f);
            for (int step = 0; step < 2; ++step) (void)trainer.step(batches);
          });
        });
        CHECK(has(message, "one replica have different micro-batches in step 1; ") == differ);
      }
  }

  struct Case {
    MeshShape mesh{};
    AnySchedule schedule = OneForwardOneBackward{};
    TrainerOptions options{.learning_rate = {.peak = 0.1}};
    DType compute = DType::f32;
  };
  using Batches = StepBatches<Dev>;
  using Trained = Trainer<Dev, DataParallel<Dev, PipelineParallel<Dev>>>;

  static double first_of(Dev& dev, const ParameterList<Dev>& parameters) {
    return widened(dev, parameters.front()->value)[0];
  }

  static MicroBatch<Dev> micro_batch(Dev& dev, std::int64_t index, DType type) {
    const auto use = static_cast<std::uint32_t>(index);
    return regression_batch(index, random_tensor(dev, type, {3, 4}, use),
                            random_tensor(dev, type, {3, 4}, 100 + use));
  }

  /// Runs body(dev, trainer, batches, parameters) on every rank, with the replica's share of four micro-batches.
  template <class Body>
  static void on_ranks(const Case& run, Body body) {
    on_ranks_of<Dev>(run.mesh.size(), [&](Dev& dev, Comm<Dev> world) {
      Mesh<Dev> mesh(std::move(world), run.mesh);
      ModelBuilder<Dev> build(Comm<Dev>{});
      Model<Dev> model;
      model.add("first", Linear<Dev>(build, "first", {.in = 4, .out = 4}));
      model.add("relu", relu<Dev>());
      model.add("last", Linear<Dev>(build, "last", {.in = 4, .out = 4}));
      model.loss = MeanSquaredError<Dev>();
      PipelineParallel<Dev> stage(dev, std::move(model), mesh, {.schedule = run.schedule},
                                  micro_batch(dev, 0, run.compute), {.compute = run.compute});
      DataParallel<Dev, PipelineParallel<Dev>> replicas(dev, stage, mesh.data());
      Sgd<Dev> optimizer(dev, stage.store(), {.momentum = 0.9});
      Norms<Dev> norms(mesh.tensor(), mesh.pipeline(), stage.parameters_in_model());
      Trained trainer(dev, replicas, mesh, optimizer, norms, run.options);
      std::vector<MicroBatch<Dev>> all;
      for (std::int64_t index = 0; index < 4; ++index)
        all.push_back(micro_batch(dev, index, run.compute));
      auto batches = assigned<Dev>(all, mesh.data().rank(), mesh.data().size());
      all.clear();  // tensors with one owner can be written
      body(dev, trainer, batches, stage.store().parameters());
    });
  }

  /// The message of a run whose second step meets `bad` in the input of micro-batch 2.
  static std::string message_with(const Case& run, float bad) {
    return message_of([&] {
      on_ranks(run, [&](Dev& dev, Trained& trainer, Batches& batches, const auto&) {
        (void)trainer.step(batches);
        for (auto& batch : batches.batches)
          if (batch.index == 2) set_element(dev, batch.input.mut(), 5, bad);
        (void)trainer.step(batches);
      });
    });
  }
};

}  // namespace tests
