// Lesson 14: late gradients. In lessons 3 and 4 every step waits for the sum of its gradients. Here replicas wait less.
// With delayed gradients a sum is used a step later. With local SGD each replica steps alone for some steps, then the
// replicas average their weights. With DiLoCo they step towards the average with momentum. The price is a different
// training path.
#include <dhp/comm/observe/count.hpp>
#include <dhp/extra/all_training_options.hpp>

#include "toy.hpp"

#include <chrono>
#include <cstdio>
#include <thread>

using toy::Dev;
constexpr int replicas = 4;
constexpr int micro_batches = 12;  // micro-batches of all replicas
constexpr int steps = 48;
constexpr int every = 8;  // steps between two averages of weights
constexpr auto longer_step = std::chrono::microseconds(2000);
constexpr auto longer_all_reduce = std::chrono::microseconds(1500);

/// Simulates a slow network: all-reduces of gradients or weights take longer.
class SlowNetwork final : public dhp::CommObserver<Dev> {
 public:
  std::unique_ptr<Watch> before(Dev*, const dhp::CommCall& call) override {
    if (call.bytes() > 1024) std::this_thread::sleep_for(longer_all_reduce);
    return nullptr;
  }
  std::shared_ptr<CommObserver> of_part(dhp::Comm<Dev>, dhp::CallSite) override {
    return std::make_shared<SlowNetwork>();
  }
};

struct Outcome {
  double bytes = 0;  // bytes that a rank brings to all-reduces, per step
  double formula = 0;
  double step_ms = 0;
  double loss = 0;  // loss after all steps, over all samples
};

Outcome train(dhp::Comm<Dev> world, const dhp::ReducerChoice& reducer) {
  Dev dev;
  const auto counts = std::make_shared<dhp::CallCounts>();
  auto seen = counted(dev, observe<Dev>(std::move(world), std::make_shared<SlowNetwork>()), counts);
  dhp::AllTrainingOptions options = toy::options({.data = replicas});
  options.reducer = reducer;
  const auto data = toy::batches(dev, micro_batches);
  // A step sums each micro-batch's loss and one more row; an evaluation sums the losses only.
  const double row = 8.0 * dhp::loss_fields;
  Outcome found;
  {
    dhp::TrainingRun run(dev, seen, options, toy::network, data.front());
    counts->reset();
    const auto start = std::chrono::steady_clock::now();
    for (int step = 0; step < steps; ++step) {
      std::this_thread::sleep_for(longer_step);  // as if the model were larger
      (void)run.step(data);
    }
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - start;
    found.step_ms = taken.count() / steps;
    found.loss = run.evaluate(data).value();
    const auto elements = static_cast<double>(run.store().size());
    const auto parameters = static_cast<double>(run.store().parameters().size());
    found.formula = (micro_batches + 1) * row;
    // Replicas that step alone sum weights every `every` steps, and each parameter's norm in each step. The others sum
    // the number of samples, then the gradients, in each step.
    const bool alone = std::holds_alternative<dhp::LocalSgd>(reducer);
    found.formula += alone ? 4 * elements / every + 8 * parameters : 4 * elements + 8;
  }  // waits for sums under way
  const auto bytes = counts->of(toy::all_ranks(replicas), dhp::CallKind::all_reduce).bytes;
  found.bytes = (static_cast<double>(bytes) - micro_batches * row) / steps;
  return found;
}

int main() {
  const struct {
    const char* name;
    dhp::ReducerChoice reducer;
  } kinds[] = {
      {"plain", dhp::Plain{}},
      {"delayed by 1", dhp::Delayed{.steps = 1}},
      {"delayed by 2", dhp::Delayed{.steps = 2}},
      {"local SGD", dhp::LocalSgd{.every = every}},
      {"DiLoCo", dhp::LocalSgd{.every = every, .outer_learning_rate = 0.7, .outer_momentum = 0.9}}};
  bool correct = true;
  std::printf("%d steps on %d replicas, on a slow network\n", steps, replicas);
  std::printf("               bytes per step   by formula   loss at the end   ms per step\n");
  for (const auto& [name, reducer] : kinds) {
    const auto found = toy::on_each_rank(replicas, train, reducer)[0];
    std::printf("%-14s %14.0f %12.0f %17.5f %13.1f\n", name, found.bytes, found.formula, found.loss,
                found.step_ms);
    correct = correct && found.bytes == found.formula && found.loss < 0.1;
  }
  return toy::status(correct);
}
