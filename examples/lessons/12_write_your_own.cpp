// Lesson 12: parts of your own (own_parts.hpp), put together. Each fulfils a concept; the compiler names a missing
// member. The page docs/write_your_own.md explains them.
#include <dhp/cpu.hpp>
#include <dhp/nn/check_gradients.hpp>

#include "own_parts.hpp"

#include <cstdio>
#include <mutex>
#include <vector>

using namespace dhp;
using own::Gain, own::LogCosh, own::Waves, own::SignDescent, own::OneByOne;

/// All of it, on every rank: the loss of each step.
std::vector<double> train(Comm<Cpu> world, MeshShape layout) {
  Cpu dev;
  Mesh<Cpu> mesh(std::move(world), layout);
  ModelBuilder<Cpu> build(mesh);
  Model<Cpu> model;
  model.add("in", Linear<Cpu>(build, "in", {.in = 2, .out = 16, .weight_init = he_normal(2)}));
  model.add("gelu", gelu<Cpu>());
  model.add("gain", Gain(build, "gain", 16));
  model.add("out", Linear<Cpu>(build, "out", {.in = 16, .out = 1, .weight_init = he_normal(16)}));
  model.loss = LogCosh{};
  PipelineParallel<Cpu> stage(
      dev, std::move(model), mesh, {.schedule = AnySchedule("one at a time", own::one_at_a_time)},
      example_batch(dev, Waves{}, 8), {.compute = DType::f64, .order_free = true, .seed = 1});
  DataParallel replicas(dev, stage, mesh.data(), OneByOne{});
  Norms<Cpu> norms(mesh.tensor(), mesh.pipeline(), stage.parameters_in_model());
  SignDescent optimizer(stage.store());
  Trainer trainer(dev, replicas, mesh, optimizer, norms, {.learning_rate = {.peak = 0.002}});
  Loader<Cpu, Waves> loader(dev, Waves{},
                            {.global_batch = 32,
                             .micro_batch = 8,
                             .replica = mesh.data().rank(),
                             .replicas = mesh.data().size()});
  std::vector<double> losses;
  for (int step = 0; step < 120; ++step) losses.push_back(trainer.step(loader.next()).loss);
  return losses;
}

/// Whether backward is the derivative of forward.
bool gradients_are_right() {
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  Gain gain(build, "gain", 2);
  LogCosh loss;
  const auto batch = example_batch(dev, Waves{}, 6);
  const auto prediction = Tensor<Cpu>::from_host(dev, {6, 1}, std::vector<double>(6, 0.3));
  const auto of_layer = check_gradients(dev, gain, batch.input, batch);
  const auto of_loss = check_loss_gradients(dev, loss, prediction, batch);
  std::printf("gradients are off by %.0e (layer) and %.0e (loss)\n", of_layer.worst, of_loss.worst);
  return of_layer.worst < 1e-6 && of_loss.worst < 1e-6;
}

int main() {
  if (!gradients_are_right()) return 1;
  std::vector<double> one, four;
  run_ranks(1, [&](Comm<Cpu> world) { one = train(world, {}); });
  std::mutex mutex;
  run_ranks(4, [&](Comm<Cpu> world) {
    auto mine = train(world, {.data = 2, .pipeline = 2});
    const std::lock_guard lock(mutex);
    four = std::move(mine);
  });
  std::printf("loss %.6f -> %.6f, the same bits on 1 and on 2 x 1 x 2 ranks: %s\n", one.front(),
              one.back(), one == four ? "yes" : "no");
  return one == four && one.back() < one.front() / 4 ? 0 : 1;
}
