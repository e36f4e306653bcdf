// Lesson 6: D, H and P together. The mesh gives each rank its place on three axes; the layers take the
// tensor axis, the pipeline its own, and data parallelism wraps the stage. Eight ranks, and the serial curve.
#include "toy.hpp"

#include <cstdio>
#include <mutex>

int main() {
  std::vector<double> serial;
  dhp::run_ranks<toy::Dev>(
      1, [&](dhp::Comm<toy::Dev> world) { serial = toy::train(world, {}, {}, 8, 40); });

  std::vector<double> eight;
  std::mutex mutex;
  dhp::run_ranks<toy::Dev>(8, [&](dhp::Comm<toy::Dev> world) {
    const dhp::MeshShape shape{.data = 2, .tensor = 2, .pipeline = 2};
    auto mine = toy::train(world, shape, {.schedule = dhp::ScheduleKind::zero_bubble}, 8, 40);
    const std::lock_guard lock(mutex);
    eight = std::move(mine);
  });

  std::printf("step   1 rank      2 x 2 x 2 ranks\n");
  for (std::size_t step : {0, 9, 19, 29, 39})
    std::printf("%4zu   %.8f  %.8f\n", step + 1, serial[step], eight[step]);
  return std::abs(serial.back() - eight.back()) < 1e-4 ? 0 : 1;
}
