// UploadQueue and DownloadQueue copy between host and GPU on their own streams, concurrently with the device's work.
#pragma once

#include <dhp/device/cuda_event.hpp>
#include <dhp/device/cuda_memory.hpp>

#include <cstddef>
#include <memory>

namespace dhp::detail {
/// Uploads the next step's input while the current step runs. The upload goes to a staging buffer on the GPU, on the
/// queue's own stream. A fast copy inside the GPU follows on the work's stream.
class UploadQueue {
 public:
  /// Below this size, one copy on the work's stream is faster than synchronizing two streams.
  static constexpr std::size_t min_bytes = std::size_t{1} << 20;

  /// bytes: the pinned ring's size. work: the device's stream. Throws OutOfMemory.
  UploadQueue(CudaMemory& memory, std::size_t bytes, cudaStream_t work)
      : landing_(memory.allocate(bytes)) {
    // The allocator may reuse memory that earlier work still reads.
    CudaEvent::recorded(work).before(stream_.get());
  }

  /// Writes `to` after the earlier work of `work`. at: the offset of `from` in the pinned ring. This piece of the ring
  /// must not be reused before `work` has passed this point.
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, std::size_t at,
            cudaStream_t work) {
    std::byte* const landed = landing_.get() + at;
    check_cuda(cudaMemcpyAsync(landed, from, bytes, cudaMemcpyHostToDevice, stream_.get()),
               "cudaMemcpyAsync to the GPU");
    CudaEvent::recorded(stream_.get()).before(work);
    check_cuda(cudaMemcpyAsync(to, landed, bytes, cudaMemcpyDeviceToDevice, work),
               "cudaMemcpyAsync on the GPU");
  }

 private:
  CudaStream stream_;
  std::shared_ptr<std::byte> landing_;  // staging buffer, as large as the pinned ring
};

/// Downloads to pinned host memory while later work of the device runs.
class DownloadQueue {
 public:
  /// Starts a copy after the earlier work of `work`, and returns the event at the copy's end.
  CudaEvent copy(std::byte* to, const std::byte* from, std::size_t bytes, cudaStream_t work) {
    CudaEvent::recorded(work).before(stream_.get());
    if (bytes > 0)
      check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.get()),
                 "cudaMemcpyAsync to the host");
    return CudaEvent::recorded(stream_.get());
  }
  /// Makes later work on `work` wait for all copies of this queue.
  void before(cudaStream_t work) const { CudaEvent::recorded(stream_.get()).before(work); }

 private:
  CudaStream stream_;
};
}  // namespace dhp::detail
