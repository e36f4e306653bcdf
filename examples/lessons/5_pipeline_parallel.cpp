// Lesson 5: P, pipeline parallelism alone. Every rank has some of the layers; micro-batches flow through
// them. A schedule is a list of each rank's actions, so it can be drawn, and proved, before it runs.
#include "toy.hpp"

#include <cstdio>
#include <mutex>

int main() {
  using namespace dhp;
  constexpr int stages = 3;
  constexpr int micro_batches = 5;
  std::vector<double> last;
  auto schedules = built_in_schedules();
  // One of your own: a function that gives the list of a stage. Here one micro-batch is in flight at a time.
  schedules.emplace_back("one at a time", [](int, int, int batches, int) {
    std::vector<Action> list;
    for (int m = 0; m < batches; ++m) {
      list.push_back({Action::Kind::forward, 0, m});
      list.push_back({Action::Kind::backward, 0, m});
    }
    return list;
  });
  for (const auto& schedule : schedules) {
    const int chunks = schedule.name() == Interleaved::name ? 2 : 1;
    const auto lists = all_stages(schedule, stages, micro_batches, chunks);
    const auto report = check_schedule(lists, chunks, micro_batches, 4);
    std::printf("%s: proved, messages on an edge: at most %d\n%s\n", schedule.name().c_str(),
                report.most_messages, draw(lists).c_str());

    std::mutex mutex;
    std::vector<double> losses;
    run_ranks<toy::Dev>(stages, [&](Comm<toy::Dev> world) {
      const auto options =
          toy::options({.pipeline = stages}, {.schedule = schedule, .chunks = chunks});
      auto mine = toy::train(world, options, micro_batches, 30);
      const std::lock_guard lock(mutex);
      losses = std::move(mine);
    });
    std::printf("loss %.8f -> %.8f\n\n", losses.front(), losses.back());
    last.push_back(losses.back());
  }
  for (const double loss : last)
    if (std::abs(loss - last[0]) > 1e-4) return 1;
  return 0;
}
