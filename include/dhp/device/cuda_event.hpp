// CudaStream and CudaEvent: a stream, one's own or a host program's, and a point in its work. Copies of either
// are the same one.
#pragma once

#include <dhp/device/cuda_error.hpp>

#include <memory>
#include <type_traits>

namespace dhp {

class CudaStream {
 public:
  /// A new one, which does not wait for the default stream; destroyed with its last copy.
  CudaStream() {
    cudaStream_t made = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreate");
    stream_ = {made, [](cudaStream_t old) { quietly(cudaStreamDestroy(old)); }};
  }
  /// One that somebody else made and destroys, after the last copy of this.
  explicit CudaStream(cudaStream_t borrowed) : stream_(borrowed, [](cudaStream_t) {}) {}
  [[nodiscard]] cudaStream_t get() const { return stream_.get(); }

 private:
  std::shared_ptr<std::remove_pointer_t<cudaStream_t>> stream_;
};

/// A point in the work of a stream.
class CudaEvent {
 public:
  CudaEvent() = default;  ///< a point that has been passed

  /// The point that `stream` is at now.
  [[nodiscard]] static CudaEvent of(cudaStream_t stream) {
    cudaEvent_t made = nullptr;
    check_cuda(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "cudaEventCreate");
    CudaEvent event;
    event.event_ = {made, [](cudaEvent_t old) { quietly(cudaEventDestroy(old)); }};
    check_cuda(cudaEventRecord(made, stream), "cudaEventRecord");
    return event;
  }

  /// False while earlier work of its stream is under way.
  [[nodiscard]] bool passed() const {
    if (event_ == nullptr) return true;
    const auto code = cudaEventQuery(event_.get());
    if (code == cudaErrorNotReady) return false;
    check_cuda(code, "cudaEventQuery (work before it failed)");
    return true;
  }
  /// The host waits.
  void wait() const {
    if (event_ != nullptr)
      check_cuda(cudaEventSynchronize(event_.get()),
                 "cudaEventSynchronize (work before it failed)");
  }
  /// What is issued on `stream` from now on comes after it.
  void before(cudaStream_t stream) const {
    if (event_ != nullptr)
      check_cuda(cudaStreamWaitEvent(stream, event_.get(), 0), "cudaStreamWaitEvent");
  }

 private:
  std::shared_ptr<std::remove_pointer_t<cudaEvent_t>> event_;
};

}  // namespace dhp
