// Lesson 13: your own parts (own_parts.hpp) in one program. Each part fulfills a concept, and the compiler names a
// missing member. The page docs/write_your_own.md explains them.
#include <dhp/nn/check_gradients.hpp>

#include "lesson.hpp"
#include "own_parts.hpp"

using namespace dhp;
using own::Gain, own::LogCosh, own::Waves, own::SignDescent, own::OneByOne;

struct Seen {
  std::vector<double> losses{};
  std::size_t weight_bytes = 0, gradient_bytes = 0;
  std::shared_ptr<CallCounts> counts = std::make_shared<CallCounts>();  // calls of one step
};

Model<Cpu> describe(ModelBuilder<Cpu>& build) {
  Model<Cpu> model;
  model.add("in", Linear<Cpu>(build, "in", {.in = 2, .out = 16, .weight_init = he_normal(2)}));
  model.add("gelu", gelu<Cpu>());
  model.add("gain", Gain(build, "gain", 16));
  model.add("out", Linear<Cpu>(build, "out", {.in = 16, .out = 1, .weight_init = he_normal(16)}));
  model.loss = LogCosh{};
  return model;
}

/// Trains with all user-written parts, on every rank.
Seen train(Comm<Cpu> world, MeshShape layout) {
  Cpu dev;
  Seen seen;
  Mesh<Cpu> mesh(counted(dev, world, seen.counts), layout);
  ModelBuilder<Cpu> build(mesh);
  PipelineParallel<Cpu> stage(
      dev, describe(build), mesh, {.schedule = AnySchedule("one at a time", own::one_at_a_time)},
      example_batch(dev, Waves{}, 8), {.compute = DType::f64, .deterministic = true, .seed = 1});
  DataParallel replicas(dev, stage, mesh.data(), OneByOne{});
  Norms<Cpu> norms(mesh.tensor(), mesh.pipeline(), stage.parameters_in_model());
  SignDescent optimizer(stage.store());
  Trainer trainer(dev, replicas, mesh, optimizer, norms, {.learning_rate = {.peak = 0.002}});
  Loader<Cpu, Waves> loader(
      dev, Waves{},
      {.global_batch = 32,
       .micro_batch = 8,
       .reader = {.replica = mesh.data().rank(), .replicas = mesh.data().size()}});
  for (int step = 0; step < 120; ++step) {
    const auto mine = loader.next();
    seen.counts->reset();
    seen.losses.push_back(trainer.step(mine).loss);
  }
  seen.weight_bytes = stage.store().weight_bytes();
  seen.gradient_bytes = stage.store().gradient_bytes();
  return seen;
}

/// Returns the losses of eight steps of a TrainingRun with the optimizer SignDescent. After `at` steps the run resumes
/// from its own state.
std::vector<double> resume(std::int64_t at) {
  Cpu dev;
  Loader loader(dev, Waves{}, {.global_batch = 32, .micro_batch = 8});
  TrainingRun run(dev, Comm<Cpu>{},
                  {.store = {.compute = DType::f64}, .trainer = {.learning_rate = {.peak = 0.002}}},
                  describe, loader, [](Cpu&, ParameterStore<Cpu>& store, const Norms<Cpu>&) {
                    return std::make_unique<SignDescent>(store);
                  });
  std::vector<double> losses;
  for (const auto last : {at, std::int64_t{8}}) {
    run.resume_after(run.trainer().state());
    while (run.steps() < last) losses.push_back(run.step().loss);
  }
  return losses;
}

/// Returns whether backward is the derivative of forward.
bool gradients_are_right() {
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  Gain gain(build, "gain", 2);
  LogCosh loss;
  const auto batch = example_batch(dev, Waves{}, 6);
  const auto prediction = Tensor<Cpu>::from_host(dev, {6, 1}, std::vector<double>(6, 0.3));
  const auto of_layer = check_gradients(dev, gain, batch.input, batch);
  const auto of_loss = check_loss_gradients(dev, loss, prediction, batch);
  const bool correct = of_layer.worst < 1e-6 && of_loss.worst < 1e-6;
  std::printf("the gradients of layer and loss are %s\n", correct ? "right" : "wrong");
  return correct;
}

int main() {
  if (!gradients_are_right()) return 1;
  const bool goes_on = resume(5) == resume(0);
  std::printf("a loader that begins after step 5 goes on: %s\n", goes_on ? "yes" : "no");
  const auto one = toy::on_each_rank<Cpu>(1, train, MeshShape{})[0];
  const auto four = toy::on_each_rank<Cpu>(4, train, MeshShape{.data = 2, .pipeline = 2});
  const bool same = one.losses == four[0].losses && one.losses == four[3].losses;
  std::printf("loss %.6f -> %.6f, the same bits on 1 and on 2 x 1 x 2 ranks: %s\n\n",
              one.losses.front(), one.losses.back(), same ? "yes" : "no");

  // Rank 0 has the first stage: the layer "in", 32 weights and 16 biases. Rank 2 has the rest: 16 gains, 16 weights and
  // a bias. In the store, each begins at a multiple of 32 numbers. All are fp64, 8 bytes; exact sums have 16 more.
  constexpr std::int64_t losses = 32 * (4 + 1), norms = 8 * 5;  // 4 micro-batches, 5 parameters
  toy::Ledger ledger("2 x 1 x 2 ranks: bytes of one rank");
  for (const int rank : {0, 2}) {
    const auto& seen = four[static_cast<std::size_t>(rank)];
    const std::int64_t numbers = rank == 0 ? 32 + 16 : 16 + 16 + 1;
    const std::int64_t padded = rank == 0 ? 2 * 32 : 3 * 32;
    std::printf("stage %d\n", rank / 2);
    ledger.line("  held: weights", seen.weight_bytes, 8 * padded);
    ledger.line("  held: gradients, and their exact sums", seen.gradient_bytes, (8 + 16) * padded);
    ledger.line("  data axis: all-reduced per step",
                seen.counts->of({rank, rank + 1}, CallKind::all_reduce).bytes,
                16 * numbers + 4 + 8 + losses);
    ledger.line("  pipeline axis: sent in messages per step",
                seen.counts->of({0, 2}, CallKind::send).bytes, 2 * 8 * 8 * 16);
    ledger.line("  pipeline axis: all-reduced per step",
                seen.counts->of({0, 2}, CallKind::all_reduce).bytes, losses + norms);
  }
  return toy::status(same && goes_on && ledger.agrees() &&
                     one.losses.back() < one.losses.front() / 4);
}
