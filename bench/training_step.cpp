// Trains an example model interactively: for each line on standard input, one step, answered with
// its seconds and loss. So training_step.py alternates with its peer. Usage: bench_training_step
// WORKLOAD THREADS TYPE, of f32, bf16 and f16
#include <bench/wrapped.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

void serve(const char* name, int threads, dhp::DType compute) {
  bench::Dev dev({.threads = threads});
  bench::WrappedRun run(dev, bench::workload(name), {.compute = compute});
  while (std::getchar() != EOF) {
    const auto start = std::chrono::steady_clock::now();
    const double loss = run.step();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    std::printf("%.6f %.6f\n", taken.count(), loss);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: bench_training_step WORKLOAD THREADS TYPE\n");
    return 2;
  }
  try {
    const std::string type = argv[3];
    for (const auto compute : {dhp::DType::f32, dhp::DType::bf16, dhp::DType::f16})
      if (type == dhp::name_of(compute)) serve(argv[1], std::atoi(argv[2]), compute);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
