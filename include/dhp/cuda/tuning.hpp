// Tuning: a device's choices of library algorithms, by timing if this is allowed, and its compiled plans.
#pragma once

#include <dhp/cuda/plan_files.hpp>
#include <dhp/cuda/tuned_choices.hpp>
#include <dhp/device/cuda.hpp>

#include <cstdlib>
#include <limits>

namespace dhp::detail::cuda {

/// Returns the shortest of several runs of body() on the stream, in ms, after a warm-up. Blocks the host.
[[nodiscard]] float shortest_ms(cudaStream_t stream, auto body) {
  constexpr int runs = 4;
  const auto begin = CudaEvent::recorded(stream, cudaEventDefault);
  const auto end = CudaEvent::recorded(stream, cudaEventDefault);
  body();
  float shortest = std::numeric_limits<float>::infinity();
  for (int run = 0; run < runs; ++run) {
    begin.record(stream);
    body();
    end.record(stream);
    end.wait();
    shortest = std::min(shortest, end.ms_since(begin));
  }
  return shortest;
}

class Tuning : public CudaCached {
 public:
  /// max_candidates: how many candidates may be timed. max_compiled: how many of these may need compiling, which takes
  /// about a second each. The fastest need not be a favorite: on an H100, ResNet-50's first layer took 1.5 ms with the
  /// best of cuDNN's first four, and 0.4 ms with the best of all that PyTorch tries.
  static constexpr std::size_t max_candidates = 16, max_compiled = 4;

  explicit Tuning(Cuda& dev)
      : choices(path_of(dev), environment_of(dev)), plans(folder_of(dev), environment_of(dev)) {}

  /// Returns whether timing is allowed. Deterministic ranks must not time: they might choose different algorithms.
  /// While a graph is captured, nothing may be timed or waited for.
  [[nodiscard]] static bool may_time(Cuda& dev) {
    auto status = cudaStreamCaptureStatusNone;
    check_cuda(cudaStreamIsCapturing(dev.stream(), &status), "cudaStreamIsCapturing");
    return !dev.options().deterministic && status == cudaStreamCaptureStatusNone;
  }

  TunedChoices choices;
  PlanFiles plans;

 private:
  static std::string path_of(Cuda& dev) {
    const bool by_environment = dev.options().plan_cache.empty();
    return by_environment && dev.options().deterministic ? "" : named(dev);
  }
  /// Plans are kept even if choices are not, because a kept plan only saves the compilation of a chosen engine.
  static std::string folder_of(Cuda& dev) {
    const auto path = named(dev);
    return path.empty() ? "" : path + ".plans";
  }
  static std::string named(Cuda& dev) {
    if (!dev.options().plan_cache.empty()) return dev.options().plan_cache;
    const char* const path = std::getenv("DHP_PLAN_CACHE");
    check(path == nullptr || *path != 0, "DHP_PLAN_CACHE is empty: is a shell variable unset?");
    return path == nullptr ? "" : path;
  }
  static std::string environment_of(Cuda& dev) {
    int driver = 0;
    check_cuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    const int sms = dev.options().cublas_sms;
    return concat(dev.properties().name, ", ", sms > 0 ? sms : dev.properties().multiProcessorCount,
                  " multiprocessors, driver ", driver, ", cuDNN ", cudnnGetVersion(), ", cuBLASLt ",
                  cublasLtGetVersion());
  }
};

}  // namespace dhp::detail::cuda
