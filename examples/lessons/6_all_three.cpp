// Lesson 6: D, H and P together, through the front door. A training run gives each rank its place on three axes:
// the layers take the tensor axis, the pipeline its own, and data parallelism wraps the stage. Eight ranks,
// and the serial curve.
#include "toy.hpp"

#include <cstdio>

int main() {
  using toy::Dev;
  std::vector<double> serial, eight;
  dhp::run_ranks<Dev>(
      1, [&](dhp::Comm<Dev> world) { serial = toy::train(world, toy::options({}), 8, 40); });

  dhp::run_ranks<Dev>(8, [&](dhp::Comm<Dev> world) {
    Dev dev;
    const auto options =
        toy::options({.data = 2, .tensor = 2, .pipeline = 2}, {.schedule = dhp::ZeroBubble{}});
    const auto batches = toy::batches(dev, 8);
    dhp::TrainingRun run(dev, world, options, toy::network, batches.front());
    for (int step = 0; step < 40; ++step) {
      const double loss = run.step(batches).loss;
      if (world.rank() == 0) eight.push_back(loss);  // every rank has the same number
    }
  });

  std::printf("step   1 rank      2 x 2 x 2 ranks\n");
  for (std::size_t step : {0, 9, 19, 29, 39})
    std::printf("%4zu   %.8f  %.8f\n", step + 1, serial[step], eight[step]);
  return std::abs(serial.back() - eight.back()) < 1e-4 ? 0 : 1;
}
