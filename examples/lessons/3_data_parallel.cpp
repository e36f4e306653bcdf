// Lesson 3: D, data parallelism alone. Every replica has all the weights and its share of the micro-batches;
// gradients are summed over the replicas. Divided by the *global* count they are the same as on one rank:
// so is the curve, up to rounding. With order-free sums it is the same to the last bit.
#include "toy.hpp"

#include <cstdio>
#include <mutex>

int main() {
  constexpr int micro_batches = 12;
  constexpr int steps = 30;
  const auto curve = [&](int replicas, bool order_free) {
    std::vector<double> losses;
    std::mutex mutex;
    dhp::run_ranks<toy::Dev>(replicas, [&](dhp::Comm<toy::Dev> world) {
      auto mine = toy::train(world, {.data = replicas}, {.store = {.order_free = order_free}},
                             micro_batches, steps);
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
