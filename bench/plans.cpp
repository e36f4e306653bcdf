// Seconds that compiling cuDNN's plans of ResNet-50's batch norms takes a process, without a GPU: for a described H200,
// with a driver library that loads nothing. The first run compiles four candidates of each problem and keeps one; with
// the same FOLDER the next run reads the kept plans.
#include <bench/program.hpp>
#include <dhp/cuda/cudnn_batch_norm.hpp>
#include <dhp/cuda/tuning.hpp>
#include <dhp/device/thread_pool.hpp>
#include <tests/cuda/described_gpus.hpp>

#include <dlfcn.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <set>

namespace {

using namespace dhp;
using namespace dhp::detail::cuda;

struct Problem {
  NormExtents extents;
  NormTail tail;
  bool backward;

  [[nodiscard]] std::string text() const {
    return concat(extents.text(backward ? "norm_backward" : "norm"), tail.text());
  }
  [[nodiscard]] CudnnGraph graph() const {
    return backward ? norm_backward_graph(extents, tail) : norm_graph(extents, tail, 1e-5f);
  }
};
/// Returns the batch norms with a ReLU of a bottleneck network with stride in its 3x3 convolutions (He et al. 2015,
/// "Deep residual learning for image recognition", table 1), for 64 images of 224 pixels in bf16.
std::vector<Problem> resnet50() {
  std::vector<Problem> all;
  const auto add = [&](std::int64_t side, std::int64_t channels, bool residual) {
    for (const bool backward : {false, true})
      all.push_back({{DType::bf16, 64 * side * side, channels}, {.residual = residual}, backward});
  };
  add(112, 64, false);
  for (std::int64_t side = 56, channels = 64; side >= 7; side /= 2, channels *= 2) {
    if (side < 56) add(2 * side, channels, false);
    add(side, channels, false);
    add(side, 4 * channels, true);
  }
  return all;
}

/// Compiles the first candidates on several threads, loads each as a device would, and keeps the first. Returns how
/// many it compiled.
int compile(const Problem& problem, const CudnnTarget& target, detail::ThreadPool& threads,
            PlanFiles& files) {
  const auto graph = problem.graph();
  std::vector<CudnnCandidate> chosen;
  std::set<std::string> names;
  for (auto& one : candidates(graph, target, {}))
    if (chosen.size() < Tuning::max_compiled && names.insert(one.name()).second)
      chosen.push_back(std::move(one));
  std::vector<std::string> texts(chosen.size());
  threads.run(static_cast<std::int64_t>(chosen.size()), [&](std::int64_t at) {
    const auto number = static_cast<std::size_t>(at);
    if (const auto plan = CudnnPlan::make(graph, target, chosen[number], {}))
      texts[number] = plan->text();
  });
  for (const auto& text : texts)
    check(CudnnPlan::from_text(graph, target, text, {}).has_value(), "no plan for ",
          problem.text());
  files.keep(problem.text(), texts.front());
  return static_cast<int>(texts.size());
}

void measure(const char* driver, const char* folder, int thread_count) {
  check(dlopen(driver, RTLD_LAZY) != nullptr, "cannot load the library ", driver);
  const auto start = std::chrono::steady_clock::now();
  const double cpu_start = bench::cpu_now(CLOCK_PROCESS_CPUTIME_ID);
  const CudnnTarget h200(tests::h200_for_cudnn());
  PlanFiles files(folder, concat("H200, cuDNN ", cudnnGetVersion()));
  detail::ThreadPool threads(thread_count);
  int compiled = 0, read = 0;
  const auto problems = resnet50();
  for (const auto& problem : problems) {
    const auto text = files.find(problem.text());
    if (text && CudnnPlan::from_text(problem.graph(), h200, *text, {})) ++read;
    else compiled += compile(problem, h200, threads, files);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf(
      "{\"problems\": %zu, \"threads\": %d, \"compiled\": %d, \"read\": %d, \"seconds\": %.2f, "
      "\"cpu_seconds\": %.2f}\n",
      problems.size(), thread_count, compiled, read, seconds.count(),
      bench::cpu_now(CLOCK_PROCESS_CPUTIME_ID) - cpu_start);
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_main(argc == 4, "bench_plans DRIVER FOLDER THREADS",
                         [&] { measure(argv[1], argv[2], std::atoi(argv[3])); });
}
