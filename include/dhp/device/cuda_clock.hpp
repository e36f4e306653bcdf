// CudaClock: converts points of a stream to seconds of the trace. CUDA events only measure differences, so the first
// event is paired with a reading of the trace's clock.
#pragma once

#include <dhp/core/trace.hpp>
#include <dhp/device/cuda_event.hpp>

namespace dhp::detail {
class CudaClock {
 public:
  /// Blocks until the stream has passed the first event, which is paired with the trace's clock.
  CudaClock(const Trace& trace, cudaStream_t stream)
      : origin_(CudaEvent::of(stream, cudaEventDefault)) {
    origin_.wait();
    origin_s_ = trace.now_s();
  }

  /// Returns the time of the stream's current point.
  [[nodiscard]] TraceMoment moment(cudaStream_t stream) const {
    const auto now = CudaEvent::of(stream, cudaEventDefault);
    return TraceMoment([origin = origin_, origin_s = origin_s_, now] {
      now.wait();
      return origin_s + static_cast<double>(now.ms_since(origin)) / 1e3;
    });
  }

 private:
  CudaEvent origin_;
  double origin_s_ = 0;
};
}  // namespace dhp::detail
