// UploadLane: a way for many bytes from page-locked memory to a GPU beside the work of its stream. They go on a stream of
// their own into memory of their own, and from there, when the work has come to where they are wanted, by a copy
// inside the GPU, which takes a small part of the time. So whoever has issued a step can send the input of the
// next one while the GPU works, and all that a device's stream orders stays ordered.
#pragma once

#include <dhp/device/cuda_event.hpp>
#include <dhp/device/cuda_memory.hpp>

#include <cstddef>
#include <memory>

namespace dhp {

class UploadLane {
 public:
  /// Fewer bytes go on the work's own stream: it takes them in less time than two streams to wait for each other.
  static constexpr std::size_t least_bytes = std::size_t{1} << 20;

  /// bytes: as many as the page-locked memory has. work: the device's stream. Throws OutOfMemory.
  UploadLane(CudaMemory& memory, std::size_t bytes, cudaStream_t work)
      : landing_(memory.allocate(bytes)) {
    CudaEvent::of(work).before(stream_.get());  // this memory may have been somebody else's
  }

  /// To `work` a copy like any other. at: where `from` lies in the page-locked memory; nothing may be written or
  /// copied from there again before `work` has passed this.
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, std::size_t at,
            cudaStream_t work) {
    std::byte* const landed = landing_.get() + at;
    check_cuda(cudaMemcpyAsync(landed, from, bytes, cudaMemcpyHostToDevice, stream_.get()),
               "cudaMemcpyAsync to the GPU");
    CudaEvent::of(stream_.get()).before(work);
    check_cuda(cudaMemcpyAsync(to, landed, bytes, cudaMemcpyDeviceToDevice, work),
               "cudaMemcpyAsync on the GPU");
  }

 private:
  CudaStream stream_;
  std::shared_ptr<std::byte> landing_;  // a place for each in the page-locked memory
};

}  // namespace dhp
