// Trains an example model interactively: does one step for each line on standard input, and answers with its seconds
// and loss. training_step.py alternates these steps with those of a peer. TYPE is f32, bf16 or f16.
#include <bench/program.hpp>
#include <bench/wrapped.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

void serve(const char* name, int threads, dhp::DType compute) {
  bench::Dev dev({.threads = threads});
  bench::WrappedRun run(dev, bench::workload(name), {.compute = compute});
  while (std::getchar() != EOF) {
    double loss = 0;
    const double seconds = bench::seconds_of([&] { loss = run.step(); });
    std::printf("%.6f %.6f\n", seconds, loss);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_main(argc == 4, "bench_training_step WORKLOAD THREADS TYPE", [&] {
    const std::string type = argv[3];
    for (const auto compute : {dhp::DType::f32, dhp::DType::bf16, dhp::DType::f16})
      if (type == dhp::name_of(compute)) serve(argv[1], std::atoi(argv[2]), compute);
  });
}
