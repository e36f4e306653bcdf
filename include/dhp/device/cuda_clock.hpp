// CudaClock: the times of stream points in trace seconds. CUDA events measure differences; the
// first event is paired with the trace's clock.
#pragma once

#include <dhp/core/trace.hpp>
#include <dhp/device/cuda_error.hpp>

#include <memory>
#include <type_traits>
#include <utility>

namespace dhp {

class CudaClock {
 public:
  /// Waits for the stream.
  CudaClock(const Trace& trace, cudaStream_t stream) : origin_(point_of(stream)) {
    check_cuda(cudaEventSynchronize(origin_.get()), "cudaEventSynchronize (work before it failed)");
    origin_s_ = trace.now_s();
  }

  /// The stream's current point.
  [[nodiscard]] TraceMoment moment(cudaStream_t stream) const {
    return TraceMoment([origin = origin_, origin_s = origin_s_, now = point_of(stream)] {
      check_cuda(cudaEventSynchronize(now.get()), "cudaEventSynchronize (work before it failed)");
      float since_ms = 0;
      check_cuda(cudaEventElapsedTime(&since_ms, origin.get(), now.get()), "cudaEventElapsedTime");
      return origin_s + static_cast<double>(since_ms) / 1e3;
    });
  }

 private:
  using Event = std::shared_ptr<std::remove_pointer_t<cudaEvent_t>>;
  [[nodiscard]] static Event point_of(cudaStream_t stream) {
    cudaEvent_t made = nullptr;
    check_cuda(cudaEventCreateWithFlags(&made, cudaEventDefault), "cudaEventCreate");
    Event event(made, [](cudaEvent_t old) { quietly(cudaEventDestroy(old)); });
    check_cuda(cudaEventRecord(made, stream), "cudaEventRecord");
    return event;
  }
  Event origin_;
  double origin_s_ = 0;
};

}  // namespace dhp
