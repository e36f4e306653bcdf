// Shared handles of owned or borrowed streams, their events, and CudaClock, which converts events to the trace's time.
#pragma once

#include <dhp/core/trace.hpp>
#include <dhp/device/cuda_error.hpp>

#include <memory>
#include <type_traits>

namespace dhp::detail {
class CudaStream {
 public:
  /// Creates a non-blocking stream, which the last copy of this handle destroys.
  CudaStream() {
    cudaStream_t result = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&result, cudaStreamNonBlocking), "cudaStreamCreate");
    stream_ = {result, [](cudaStream_t old) { quietly(cudaStreamDestroy(old)); }};
  }
  /// Borrows a stream, which must outlive all copies of this handle.
  explicit CudaStream(cudaStream_t borrowed) : stream_(borrowed, [](cudaStream_t) {}) {}
  [[nodiscard]] cudaStream_t get() const { return stream_.get(); }

 private:
  std::shared_ptr<std::remove_pointer_t<cudaStream_t>> stream_;
};

/// A point in the work of a stream.
class CudaEvent {
 public:
  CudaEvent() = default;  ///< an event that has already passed

  /// Returns the current point of `stream`. flags: ms_since() needs cudaEventDefault.
  [[nodiscard]] static CudaEvent recorded(cudaStream_t stream,
                                          unsigned flags = cudaEventDisableTiming) {
    cudaEvent_t result = nullptr;
    check_cuda(cudaEventCreateWithFlags(&result, flags), "cudaEventCreate");
    CudaEvent event;
    event.event_ = {result, [](cudaEvent_t old) { quietly(cudaEventDestroy(old)); }};
    event.record(stream);
    return event;
  }
  /// Moves the event to the current point of `stream`.
  void record(cudaStream_t stream) const {
    check_cuda(cudaEventRecord(event_.get(), stream), "cudaEventRecord");
  }

  /// Returns false while the stream still runs work before this event.
  [[nodiscard]] bool passed() const {
    if (event_ == nullptr) return true;
    const auto code = cudaEventQuery(event_.get());
    if (code == cudaErrorNotReady) {
      quietly(code);
      return false;
    }
    check_cuda(code, "cudaEventQuery (work before it failed)");
    return true;
  }
  /// Blocks the host until the stream has passed this event.
  void wait() const {
    if (event_ != nullptr)
      check_cuda(cudaEventSynchronize(event_.get()),
                 "cudaEventSynchronize (work before it failed)");
  }
  /// Returns the milliseconds since `begin`. Both events must have passed.
  [[nodiscard]] float ms_since(const CudaEvent& begin) const {
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin.event_.get(), event_.get()), "cudaEventElapsedTime");
    return ms;
  }
  /// Makes later work on `stream` wait for this event.
  void before(cudaStream_t stream) const {
    if (event_ != nullptr)
      check_cuda(cudaStreamWaitEvent(stream, event_.get(), 0), "cudaStreamWaitEvent");
  }

 private:
  std::shared_ptr<std::remove_pointer_t<cudaEvent_t>> event_;
};

/// Converts points of a stream to seconds of the trace. CUDA events only measure differences, so the first event is
/// paired with a reading of the trace's clock.
class CudaClock {
 public:
  /// Blocks the host until the stream has passed the first event.
  CudaClock(const Trace& trace, cudaStream_t stream)
      : origin_(CudaEvent::recorded(stream, cudaEventDefault)) {
    origin_.wait();
    origin_s_ = trace.now_s();
  }

  /// Returns the time of the stream's current point, without waiting for it.
  [[nodiscard]] TraceMoment moment(cudaStream_t stream) const {
    const auto now = CudaEvent::recorded(stream, cudaEventDefault);
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
