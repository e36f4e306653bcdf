// DownloadQueue: copies to pinned host memory on a stream of its own, beside the work that follows.
#pragma once

#include <dhp/device/cuda_event.hpp>

#include <cstddef>

namespace dhp::detail {
class DownloadQueue {
 public:
  /// Copies what `work` has written so far; returns the point at which the copy is complete.
  CudaEvent copy(std::byte* to, const std::byte* from, std::size_t bytes, cudaStream_t work) {
    CudaEvent::of(work).before(stream_.get());
    if (bytes > 0)
      check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.get()),
                 "cudaMemcpyAsync to the host");
    return CudaEvent::of(stream_.get());
  }
  /// Later work on `work` comes after all copies.
  void before(cudaStream_t work) const { CudaEvent::of(stream_.get()).before(work); }

 private:
  CudaStream stream_;
};
}  // namespace dhp::detail
