// Synthetic gradients: chains of one weight per stage against direct computations in double, and refusals.
#include <dhp/cpu.hpp>
#include <dhp/extra/synthetic_gradients.hpp>
#include <tests/support/layouts.hpp>
#include <tests/support/regression.hpp>

namespace {

constexpr double rate = 0.05;

struct Settings {
  int stages = 2;
  int replicas = 1;
  int micro_batches = 3;
  std::optional<SyntheticGradients> synthetic = SyntheticGradients{.rate = 0.8};
  DType compute = DType::f64;
  bool deterministic = false;
  Sharding sharding{};
};
constexpr double wanted = 0.3;

double x_of(int step, int k) { return 0.5 + 0.1 * step + 0.3 * k; }

MicroBatch<Cpu> sample(Cpu& dev, const Settings& settings, int step, int k) {
  Tensor<Cpu> x(dev, settings.compute, {1, 1}), target(dev, x.dtype(), x.shape());
  fill(dev, x.mut(), x_of(step, k));
  fill(dev, target.mut(), wanted);
  return regression_batch(k, std::move(x), std::move(target));
}

// The chain y = w_last ... w_1 w_0 x: each stage's weight and predictor after the steps, on replica 0.
struct Chain {
  std::vector<double> w, a;
  friend bool operator==(const Chain&, const Chain&) = default;
};

auto chain_of(int stages) {
  return [stages](ModelBuilder<Cpu>& build) {
    Model<Cpu> model;
    for (int at = 0; at < stages; ++at)
      model.add(std::to_string(at), one_weight(build, std::to_string(at), 1 - 0.1 * at));
    model.loss = MeanSquaredError<Cpu>();
    return model;
  };
}

Chain run(const Settings& settings, int steps) {
  const auto stages = static_cast<std::size_t>(settings.stages);
  Chain found{std::vector<double>(stages), std::vector<double>(stages)};
  Layout layout{{.data = settings.replicas, .pipeline = settings.stages}};
  if (settings.synthetic) layout.schedule = SyntheticGradients::schedule();
  const RunSettings run{.compute = settings.compute,
                        .deterministic = settings.deterministic,
                        .sharding = settings.sharding,
                        .optimizer = SgdOptions{},
                        .lr = rate,
                        .clip = 0};
  const auto example = [&](Cpu& dev) { return sample(dev, settings, 0, 0); };
  on_each_rank(layout, run, chain_of(settings.stages), example,
               [&](Cpu& dev, Mesh<Cpu>& mesh, auto& stage, auto& trainer) {
                 auto* const predictor = settings.synthetic ? settings.synthetic->predict_in(
                                                                  dev, stage, mesh, example(dev))
                                                            : nullptr;
                 for (int step = 0; step < steps; ++step) {
                   auto batches = assigned(mesh, settings.micro_batches, [&](std::int64_t k) {
                     return sample(dev, settings, step, static_cast<int>(k));
                   });
                   (void)trainer.step(batches);
                   (void)trainer.evaluate(batches);  // must change nothing
                 }
                 const auto at = static_cast<std::size_t>(mesh.pipeline_index());
                 if (mesh.data_index() != 0) return;
                 found.w[at] = widened(dev, stage.store().parameters().front()->value)[0];
                 if (predictor != nullptr)
                   found.a[at] = widened(dev, predictor->weights().view())[0];
               });
  return found;
}

// Computes the same chain directly in double.
Chain expected(const Settings& settings, int steps) {
  const auto stages = static_cast<std::size_t>(settings.stages);
  Chain chain{{}, std::vector<double>(stages, 0)};
  for (int at = 0; at < settings.stages; ++at) chain.w.push_back(1 - 0.1 * at);
  for (int step = 0; step < steps; ++step) {
    std::vector<double> of_w(stages, 0), of_a(stages, 0), squares(stages, 0);
    for (int k = 0; k < settings.micro_batches; ++k) {
      std::vector<double> y{x_of(step, k)};
      for (const double w : chain.w) y.push_back(w * y.back());  // y[s + 1]: output of stage s
      double truth = 2 * (y.back() - wanted) / settings.micro_batches;
      for (std::size_t s = stages; s-- > 0;) {
        double used = truth;
        if (s + 1 < stages) {
          used = chain.a[s] * y[s + 1];
          of_a[s] += y[s + 1] * (used - truth);
          squares[s] += y[s + 1] * y[s + 1];
        }
        of_w[s] += used * y[s];
        truth = used * chain.w[s];
      }
    }
    for (std::size_t s = 0; s < stages; ++s) {
      chain.w[s] -= rate * of_w[s];
      if (s + 1 < stages) chain.a[s] -= settings.synthetic->rate * of_a[s] / squares[s];
    }
  }
  return chain;
}

}  // namespace

TEST_CASE("synthetic gradients: a run resumes after a step that was not finite") {
  const Settings settings;
  std::string failed, resumed;
  on_each_rank(
      {{.pipeline = 2}, SyntheticGradients::schedule()}, {.optimizer = SgdOptions{}}, chain_of(2),
      [&](Cpu& dev) { return sample(dev, settings, 0, 0); },
      [&](Cpu& dev, Mesh<Cpu>& mesh, auto& stage, auto& trainer) {
        (void)settings.synthetic->predict_in(dev, stage, mesh, sample(dev, settings, 0, 0));
        const auto step = [&](double x) {
          auto batches = assigned(mesh, 3, [&](std::int64_t k) {
            auto batch = sample(dev, settings, 0, static_cast<int>(k));
            fill(dev, batch.input.mut(), x);
            return batch;
          });
          return message_of([&] { (void)trainer.step(batches); });
        };
        (void)step(1);
        const auto good = trainer.state();
        const auto bad = step(std::numeric_limits<double>::infinity());
        trainer.resume_after(good);
        const auto after = step(1);
        if (mesh.pipeline_index() == 0) failed = bad, resumed = after;
      });
  CHECK(has(failed, "step 2: the loss is not finite"));
  CHECK(resumed == "no error");
}

TEST_CASE("synthetic gradients: stages use predictions, corrected by the next stage's gradients") {
  for (const int stages : {2, 3, 4})
    for (const int replicas : {1, 2})
      for (const int micro_batches : {1, 3, 20}) {
        CAPTURE(stages);
        CAPTURE(replicas);
        CAPTURE(micro_batches);
        const Settings settings{
            .stages = stages, .replicas = replicas, .micro_batches = micro_batches};
        const auto found = run(settings, 4);
        const auto reference = expected(settings, 4);
        CHECK(distance(found.w, reference.w) < 1e-13);
        CHECK(distance(found.a, reference.a) < 1e-13);
        CHECK(reference.a[0] != 0);
        CHECK(found == run(settings, 4));
      }
}

TEST_CASE("synthetic gradients: one stage predicts nothing") {
  CHECK(run({.stages = 1}, 3) == run({.stages = 1, .synthetic = {}}, 3));
}

TEST_CASE("synthetic gradients: unsupported settings are refused") {
  const auto message = [](const Settings& settings) {
    return message_of([&] { (void)run(settings, 1); });
  };
  CHECK(has(message({.synthetic = SyntheticGradients{.rate = 2}}), "rate of 2 does not learn"));
  CHECK(has(message({.stages = 1, .compute = DType::bf16}), "f32 or f64, not in bf16"));
  CHECK(has(message({.deterministic = true}), "exact sums"));
  CHECK(has(message({.replicas = 2, .sharding = {ZeroStage::optimizer}}), "not for ZeRO"));
  CHECK(has(message_of([] { SyntheticGradients{}.check_fits({}, 2); }), "not for 2"));
}
