// Lesson 5: P, pipeline parallelism alone. Every rank has some of the layers; micro-batches flow through
// them. A schedule says who does what when. It is a list, so it can be drawn, and proved, before it runs.
#include "toy.hpp"

#include <cstdio>
#include <mutex>
#include <string>

int main() {
  using namespace dhp;
  constexpr int stages = 3;
  constexpr int micro_batches = 5;
  std::vector<double> last;
  for (const auto kind : {ScheduleKind::gpipe, ScheduleKind::one_forward_one_backward,
                          ScheduleKind::interleaved, ScheduleKind::zero_bubble}) {
    const int chunks = kind == ScheduleKind::interleaved ? 2 : 1;
    const auto lists = all_stages(kind, stages, micro_batches, chunks);
    const auto report = check_schedule(lists, chunks, micro_batches, 4);
    const std::string name(name_of(kind));
    std::printf("%s: proved, messages on an edge: at most %d\n%s\n", name.c_str(),
                report.most_messages, draw(lists).c_str());

    std::mutex mutex;
    std::vector<double> losses;
    run_ranks<toy::Dev>(stages, [&](Comm<toy::Dev> world) {
      auto mine = toy::train(world, {.pipeline = stages}, {.schedule = kind, .chunks = chunks},
                             micro_batches, 30);
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
