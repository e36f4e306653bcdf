// The overhead of a communicator without peers. Steps in a world of one rank, with bucketed reduction (by NCCL on
// GPUs), alternate with steps without a communicator. Prints one line of JSON per round.
#include <bench/program.hpp>
#include <bench/wrapped.hpp>
#include <dhp/comm/launch.hpp>
#ifdef DHP_HAS_NCCL
#include <dhp/comm/nccl/launch.hpp>
#endif

#include <cstdio>
#include <cstdlib>

namespace {

using bench::Dev;

void measure(const char* name, int rounds, int steps, const dhp::Comm<Dev>& world) {
  const auto workload = bench::workload(name);
  Dev dev;
  bench::WrappedRun alone(dev, workload, {.compute = dhp::DType::bf16});
  bench::WrappedRun in_world(dev, workload, {.compute = dhp::DType::bf16, .replicas = world});
  for (int round = -1; round < rounds; ++round) {  // round -1 is a warm-up
    double loss = 0, loss_in_world = 0;
    const double seconds = bench::seconds_of([&] { loss = alone.steps(steps); });
    const double in_world_s = bench::seconds_of([&] { loss_in_world = in_world.steps(steps); });
    if (round < 0) continue;
    std::printf(
        "{\"alone_s\": %.9g, \"in_world_s\": %.9g, \"loss\": %.9g, \"loss_in_world\": %.9g}\n",
        seconds / steps, in_world_s / steps, loss, loss_in_world);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_main(argc == 4, "bench_world_of_one WORKLOAD ROUNDS STEPS", [&] {
    const auto body = [&](const dhp::Comm<Dev>& world) {
      measure(argv[1], std::atoi(argv[2]), std::atoi(argv[3]), world);
    };
    // run_ranks would create no communicator for one rank.
    dhp::detail::RankLauncher<Dev>::run(1, body, dhp::CallSite::current());
  });
}
