// The overhead of a communicator without peers: steps in a world of one rank, with bucketed
// reduction (by NCCL on GPUs), alternate with steps without a communicator. Prints one line of JSON
// per round. Usage: bench_world_of_one WORKLOAD ROUNDS STEPS
#include <bench/wrapped.hpp>
#include <dhp/comm/launch.hpp>
#ifdef DHP_HAS_NCCL
#include <dhp/comm/nccl/launch.hpp>
#endif

#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace {

using bench::Dev;

double seconds_of(bench::WrappedRun& run, int steps, double& loss) {
  const auto start = std::chrono::steady_clock::now();
  loss = run.steps(steps);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void measure(const char* name, int rounds, int steps, const dhp::Comm<Dev>& world) {
  const auto workload = bench::workload(name);
  Dev dev;
  bench::WrappedRun alone(dev, workload, {.compute = dhp::DType::bf16});
  bench::WrappedRun in_world(dev, workload, {.compute = dhp::DType::bf16, .replicas = world});
  for (int round = -1; round < rounds; ++round) {  // the first one is a warm-up
    double loss = 0, loss_in_world = 0;
    const double seconds = seconds_of(alone, steps, loss);
    const double in_world_s = seconds_of(in_world, steps, loss_in_world);
    if (round < 0) continue;
    std::printf(
        "{\"alone_s\": %.9g, \"in_world_s\": %.9g, \"loss\": %.9g, \"loss_in_world\": %.9g}\n",
        seconds / steps, in_world_s / steps, loss, loss_in_world);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: bench_world_of_one WORKLOAD ROUNDS STEPS\n");
    return 2;
  }
  try {
    const auto body = [&](const dhp::Comm<Dev>& world) {
      measure(argv[1], std::atoi(argv[2]), std::atoi(argv[3]), world);
    };
    // Not run_ranks, which creates no communicator for one rank.
    dhp::detail::RankLauncher<Dev>::run(1, body, dhp::CallSite::current());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
