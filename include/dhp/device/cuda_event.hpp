// CudaStream and CudaEvent: shared handles of a stream, owned or borrowed, and of a point in its
// work.
#pragma once

#include <dhp/device/cuda_error.hpp>

#include <memory>
#include <type_traits>

namespace dhp {

class CudaStream {
 public:
  /// Creates a non-blocking stream; the last copy destroys it.
  CudaStream() {
    cudaStream_t made = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreate");
    stream_ = {made, [](cudaStream_t old) { quietly(cudaStreamDestroy(old)); }};
  }
  /// Borrows a stream, which must outlive all copies.
  explicit CudaStream(cudaStream_t borrowed) : stream_(borrowed, [](cudaStream_t) {}) {}
  [[nodiscard]] cudaStream_t get() const { return stream_.get(); }

 private:
  std::shared_ptr<std::remove_pointer_t<cudaStream_t>> stream_;
};

/// A point in the work of a stream.
class CudaEvent {
 public:
  CudaEvent() = default;  ///< an event that has already passed

  /// The current point of `stream`.
  [[nodiscard]] static CudaEvent of(cudaStream_t stream) {
    cudaEvent_t made = nullptr;
    check_cuda(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "cudaEventCreate");
    CudaEvent event;
    event.event_ = {made, [](cudaEvent_t old) { quietly(cudaEventDestroy(old)); }};
    check_cuda(cudaEventRecord(made, stream), "cudaEventRecord");
    return event;
  }

  /// False while earlier work of the stream runs.
  [[nodiscard]] bool passed() const {
    if (event_ == nullptr) return true;
    const auto code = cudaEventQuery(event_.get());
    if (code == cudaErrorNotReady) return false;
    check_cuda(code, "cudaEventQuery (work before it failed)");
    return true;
  }
  /// Blocks the host.
  void wait() const {
    if (event_ != nullptr)
      check_cuda(cudaEventSynchronize(event_.get()),
                 "cudaEventSynchronize (work before it failed)");
  }
  /// Later work on `stream` waits for this event.
  void before(cudaStream_t stream) const {
    if (event_ != nullptr)
      check_cuda(cudaStreamWaitEvent(stream, event_.get(), 0), "cudaStreamWaitEvent");
  }

 private:
  std::shared_ptr<std::remove_pointer_t<cudaEvent_t>> event_;
};

}  // namespace dhp
