// Lesson 4: H, tensor parallelism alone. Every rank has a part of each weight and works on every sample.
// A column-parallel layer has a part of the outputs, the row-parallel layer behind it a part of the inputs:
// one sum over the ranks for the pair forward, and one backward.
#include "toy.hpp"

#include <cstdio>
#include <mutex>

int main() {
  using namespace dhp;
  using toy::Dev;

  // One pair by hand, on two ranks: what each holds, and what comes out.
  run_ranks<Dev>(2, [&](Comm<Dev> world) {
    Dev dev;
    ModelBuilder<Dev> build(world);
    auto columns = column_parallel_linear(build, "columns", {.in = 2, .out = 6});
    RowParallelLinear<Dev> rows(build, "rows", {.in = 6, .out = 1});
    ParameterList<Dev> parameters;
    columns.parameters(parameters);
    rows.parameters(parameters);
    ParameterStore<Dev> store(dev, parameters, {.seed = 3});
    if (world.rank() == 0)
      for (const auto& parameter : parameters)
        std::printf("%-15s %s of %s on each rank\n", parameter->spec.name.c_str(),
                    to_text(parameter->spec.local_shape()).c_str(),
                    to_text(parameter->spec.shape).c_str());
    Tape<Dev> tape({});
    auto x = Tensor<Dev>::from_host(dev, {4, 2}, std::vector<float>{1, 0, 0, 1, 1, 1, 2, -1});
    auto y = rows.forward(dev, columns.forward(dev, std::move(x), tape), tape);
    // Every rank has the whole output.
    if (world.rank() == 0)
      for (const float value : y.to_host<float>(dev)) std::printf("  y = % .6f\n", value);
  });

  // And training: one rank and four give the same curve.
  std::vector<std::vector<double>> curves;
  for (const int ranks : {1, 4}) {
    std::mutex mutex;
    std::vector<double> losses;
    run_ranks<Dev>(ranks, [&](Comm<Dev> world) {
      auto mine = toy::train(world, toy::options({.tensor = ranks}), 4, 30);
      const std::lock_guard lock(mutex);
      losses = std::move(mine);
    });
    curves.push_back(losses);
    std::printf("%d ranks: loss %.8f -> %.8f\n", ranks, losses.front(), losses.back());
  }
  return std::abs(curves[0].back() - curves[1].back()) < 1e-4 ? 0 : 1;
}
