// Solutions of lesson 9. 1: how many micro-batches keep the pipeline busy. 2: a schedule that deadlocks.
#include <dhp/parallel/schedule_check.hpp>
#include <dhp/parallel/schedule_time.hpp>

#include "lesson.hpp"

#include <algorithm>
#include <cstdio>
#include <string>

/// Returns the least number of micro-batches with which stage 0 is idle for at most this share of the time.
int min_micro_batches(const dhp::AnySchedule& schedule, int stages, double share) {
  for (int m = 1;; ++m)
    if (dhp::simulate(dhp::all_stages(schedule, stages, m, 1)).idle_share[0] <= share + 1e-12)
      return m;
}

/// A deadlock: the first stage waits for its first gradient after one forward; the others want two forwards first.
std::vector<dhp::Action> waits_forever(int stage, int, int micro_batches, int) {
  using Kind = dhp::Action::Kind;
  const int ahead = stage == 0 ? 1 : 2;
  std::vector<dhp::Action> list;
  for (int m = 0; m < micro_batches + ahead; ++m) {
    if (m < micro_batches) list.push_back({Kind::forward, 0, m});
    if (m >= ahead - 1 && m - ahead + 1 < micro_batches)
      list.push_back({Kind::backward, 0, m - ahead + 1});
  }
  return list;
}

int main() {
  bool correct = true;
  // Exercise 1. GPipe and 1F1B: (s - 1) / (m + s - 1) <= 1/10 if m >= 9 (s - 1). Zero-bubble has 3 m in place of m.
  for (const int stages : {2, 4, 8}) {
    const int gpipe = min_micro_batches(dhp::GPipe{}, stages, 0.1);
    const int one_f = min_micro_batches(dhp::OneForwardOneBackward{}, stages, 0.1);
    const int zero = min_micro_batches(dhp::ZeroBubble{}, stages, 0.1);
    std::printf(
        "%d stages, idle for at most 10 %%: gpipe %d, 1f1b %d, zero-bubble %d micro-batches\n",
        stages, gpipe, one_f, zero);
    correct = correct && gpipe == 9 * (stages - 1) && one_f == gpipe &&
              zero == std::max(3 * (stages - 1), stages);
  }
  // Exercise 2.
  std::string sentence;
  try {
    (void)dhp::check_schedule(dhp::all_stages(dhp::AnySchedule("stuck", waits_forever), 2, 3, 1), 1,
                              3, 4);
  } catch (const dhp::Error& error) {
    sentence = error.sentence();
  }
  std::printf("refused: %s\n", sentence.c_str());
  return toy::status(correct && !sentence.empty());
}
