// Solutions of lesson 14.
#include <dhp/extra/all_training_options.hpp>

#include "lesson.hpp"
#include "toy.hpp"

#include <cmath>
#include <cstdio>

using toy::Dev;

/// Returns the loss after 48 steps on 4 replicas.
double loss_with(const dhp::AllTrainingOptions& options) {
  return toy::on_each_rank(4, [&](dhp::Comm<Dev> world) {
    Dev dev;
    const auto data = toy::batches(dev, 12);
    dhp::TrainingRun run(dev, std::move(world), options, toy::network, data.front());
    for (int step = 0; step < 48; ++step) (void)run.step(data);
    return run.evaluate(data).value();
  })[0];
}

int main() {
  // 1. With SGD, the mean of the weights after one step is the step along the mean gradient, since weights are linear
  // in gradients. AdamW divides each gradient by its size, and a mean of quotients is not the quotient of means.
  dhp::AllTrainingOptions options = toy::options({.data = 4});
  const auto with = [&](const dhp::OptimizerChoice& optimizer, const dhp::ReducerChoice& reducer) {
    options.optimizer = optimizer;
    options.reducer = reducer;
    return loss_with(options);
  };
  const dhp::SgdOptions sgd{.momentum = 0.9};
  const dhp::AdamWOptions adamw{.weight_decay = 0};
  const dhp::LocalSgd each_step{.every = 1};
  const double apart_sgd = std::abs(with(sgd, each_step) - with(sgd, dhp::Plain{}));
  const double apart_adamw = std::abs(with(adamw, each_step) - with(adamw, dhp::Plain{}));
  std::printf("a mean of weights in every step, against sums of gradients: the losses are\n");
  std::printf("  %.0e apart with SGD, %.0e with AdamW\n", apart_sgd, apart_adamw);

  // 2. Smaller steps move the weights less during a delay, so a delay costs less. But small steps are slow if nothing
  // is late.
  std::printf("loss by delay     0        1        2        4\n");
  double times_worse = 0;  // ratio at a delay of 4
  for (const double rate : {0.01, 0.0025}) {
    options.trainer.learning_rate.peak = rate;
    std::printf("rate %.4f", rate);
    double first = 0;
    for (const int delay : {0, 1, 2, 4}) {
      const double loss = with(adamw, dhp::Delayed{.steps = delay});
      std::printf("  %.5f", loss);
      if (delay == 0) first = loss;
      times_worse = loss / first;
    }
    std::printf("  %.0f times that of no delay\n", times_worse);
  }
  return toy::status(apart_sgd < 1e-5 && apart_adamw > apart_sgd && times_worse < 10);
}
