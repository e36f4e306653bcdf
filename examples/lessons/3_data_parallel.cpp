// Lesson 3: D, data parallelism alone. Every replica has all the weights and its share of the micro-batches;
// gradients are summed over the replicas. Divided by the *global* count they are the same as on one rank, and
// so is the curve, up to rounding; with order-free sums it has the same bits. The other lessons have a training
// run; here its parts are put together by hand.
#include "toy.hpp"

#include <cstdio>
#include <mutex>

using toy::Dev;
constexpr int micro_batches = 12;
constexpr int steps = 30;

std::vector<double> train(dhp::Comm<Dev> world, int replicas, bool order_free) {
  Dev dev;
  dhp::Mesh<Dev> mesh(world, {.data = replicas});
  dhp::ModelBuilder<Dev> build(mesh);
  const auto all = toy::batches(dev, micro_batches);
  // The whole model on every rank: a pipeline of one stage.
  dhp::PipelineParallel<Dev> stage(dev, toy::network(build), mesh, {}, all.front(),
                                   {.order_free = order_free});
  // Around it, the sum of the gradients: buckets of them start while the backward pass goes on.
  dhp::DataParallel model(dev, stage, mesh.data(), dhp::Bucketed{.bytes = 4096});
  dhp::Norms<Dev> norms(mesh.tensor(), mesh.pipeline(), stage.parameters_in_model());
  dhp::AdamW<Dev> optimizer(dev, stage.store(), {.weight_decay = 0});
  dhp::Trainer trainer(dev, model, mesh, optimizer, norms, {.learning_rate = {.peak = 0.01}});
  const auto mine = dhp::assigned<Dev>(all, mesh.data().rank(), replicas);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) losses.push_back(trainer.step(mine).loss);
  return losses;
}

int main() {
  const auto curve = [&](int replicas, bool order_free) {
    std::vector<double> losses;
    std::mutex mutex;
    dhp::run_ranks<Dev>(replicas, [&](dhp::Comm<Dev> world) {
      auto mine = train(world, replicas, order_free);
      const std::lock_guard lock(mutex);
      losses = std::move(mine);  // every rank has the same numbers
    });
    return losses;
  };
  const auto one = curve(1, false);
  const auto four = curve(4, false);
  const auto one_exact = curve(1, true);
  const auto three_exact = curve(3, true);
  std::printf("step   1 rank        4 ranks       3 ranks, order-free sums\n");
  for (std::size_t step : {0, 9, 19, 29})
    std::printf("%4zu   %.10f  %.10f  %.10f\n", step + 1, one[step], four[step], three_exact[step]);
  const bool falls = one.back() < one.front() / 4;
  const bool same_bits = one_exact == three_exact;
  std::printf("order-free: 1 and 3 ranks give %s\n",
              same_bits ? "the same bits" : "different bits");
  return falls && same_bits && std::abs(one.back() - four.back()) < 1e-4 ? 0 : 1;
}
