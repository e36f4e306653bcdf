// PinnedRing: page-locked host memory through which copies between host and GPU go, so that neither waits for
// the other. Pieces are given out in turn; a piece is free again when the GPU has passed its event.
#pragma once

#include <dhp/device/cuda_event.hpp>

#include <cstddef>
#include <deque>
#include <memory>

namespace dhp {

class PinnedRing {
 public:
  explicit PinnedRing(std::size_t bytes) : size_(bytes) {
    void* data = nullptr;
    check_cuda(cudaMallocHost(&data, bytes), "cudaMallocHost");
    data_ = {static_cast<std::byte*>(data), [](std::byte* old) { quietly(cudaFreeHost(old)); }};
  }

  /// The most that take() gives.
  [[nodiscard]] std::size_t largest_bytes() const { return size_ / 2; }

  /// A piece of `bytes`, at most largest_bytes(); waits until the GPU has done with what lay there. After
  /// issuing the copy call release().
  [[nodiscard]] std::byte* take(std::size_t bytes) {
    const std::size_t wanted = (bytes + 255) / 256 * 256;
    if (head_ + wanted > size_) head_ = 0;
    const std::size_t first = head_;
    while (!pieces_.empty() && overlaps(pieces_.front(), first, first + wanted)) {
      pieces_.front().event.wait();
      pieces_.pop_front();
    }
    head_ = first + wanted;
    pieces_.push_back({first, first + wanted, {}});
    return data_.get() + first;
  }
  /// The piece taken last is in use until `stream` has come here.
  void release(cudaStream_t stream) { pieces_.back().event = CudaEvent::of(stream); }

 private:
  struct Piece {
    std::size_t first, last;
    CudaEvent event;
  };
  static bool overlaps(const Piece& piece, std::size_t first, std::size_t last) {
    return piece.first < last && first < piece.last;
  }

  std::size_t size_;
  std::size_t head_ = 0;
  std::shared_ptr<std::byte> data_;
  std::deque<Piece> pieces_;  // in the order of the ring, so in the order of the stream
};

}  // namespace dhp
