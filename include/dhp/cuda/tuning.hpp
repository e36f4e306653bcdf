// Tuning: how a library's algorithm is chosen: by timing, or, if that is not allowed, the library's
// heuristic favorite.
#pragma once

#include <dhp/cuda/tuned_choices.hpp>
#include <dhp/device/cuda.hpp>

#include <cstdlib>
#include <limits>

namespace dhp::cuda {

/// During graph capture nothing may be timed or waited for.
[[nodiscard]] inline bool is_recorded(Cuda& dev) {
  auto status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(dev.stream(), &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

/// Times a stream by events.
class Stopwatch {
 public:
  Stopwatch() : start_(make()), stop_(make()) {}

  /// The shortest of several runs of body() on the stream, in ms, after a warm-up. Blocks the host.
  template <class Body>
  [[nodiscard]] float shortest_ms(cudaStream_t stream, Body body) const {
    constexpr int runs = 4;
    body();
    float shortest = std::numeric_limits<float>::infinity();
    for (int run = 0; run < runs; ++run) {
      check_cuda(cudaEventRecord(start_.get(), stream), "cudaEventRecord");
      body();
      check_cuda(cudaEventRecord(stop_.get(), stream), "cudaEventRecord");
      check_cuda(cudaEventSynchronize(stop_.get()), "cudaEventSynchronize (a timed algorithm)");
      float ms = 0;
      check_cuda(cudaEventElapsedTime(&ms, start_.get(), stop_.get()), "cudaEventElapsedTime");
      shortest = std::min(shortest, ms);
    }
    return shortest;
  }

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const noexcept { quietly(cudaEventDestroy(event)); }
  };
  using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroy>;
  static Event make() {
    cudaEvent_t made = nullptr;
    check_cuda(cudaEventCreate(&made), "cudaEventCreate");
    return Event(made);
  }
  Event start_, stop_;
};

class Tuning : public CudaCached {
 public:
  /// The number of timed candidates; compiling one may take a second.
  static constexpr std::size_t most_candidates = 4;

  explicit Tuning(Cuda& dev) : choices(path_of(dev), environment_of(dev)) {}

  /// Ranks that time separately may choose differently, and their bits would differ.
  [[nodiscard]] static bool may_time(Cuda& dev) {
    return !dev.options().deterministic && !is_recorded(dev);
  }

  TunedChoices choices;

 private:
  static std::string path_of(Cuda& dev) {
    if (!dev.options().plan_cache.empty()) return dev.options().plan_cache;
    const char* const named = std::getenv("DHP_PLAN_CACHE");
    return named == nullptr || dev.options().deterministic ? "" : named;
  }
  static std::string environment_of(Cuda& dev) {
    int driver = 0;
    check_cuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    return concat(dev.properties().name, ", ", dev.properties().multiProcessorCount,
                  " multiprocessors, driver ", driver, ", cuDNN ", cudnnGetVersion(), ", cuBLASLt ",
                  cublasLtGetVersion());
  }
};

}  // namespace dhp::cuda
