// Pinned host memory for asynchronous copies. PinnedRing hands out pieces in ring order; a piece is free once the GPU
// has passed the piece's event. PinnedBlocks is a pool of blocks, which can be freed in any order.
#pragma once

#include <dhp/device/cuda_event.hpp>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace dhp::detail {
[[nodiscard]] inline std::shared_ptr<std::byte> allocate_pinned(std::size_t bytes) {
  void* data = nullptr;
  check_cuda(cudaMallocHost(&data, bytes), "cudaMallocHost");
  return {static_cast<std::byte*>(data), [](std::byte* old) { quietly(cudaFreeHost(old)); }};
}

class PinnedBlocks : public std::enable_shared_from_this<PinnedBlocks> {
 public:
  struct Copy {
    std::shared_ptr<std::byte> data;
    CudaEvent end;
  };
  /// copy(data) must start a copy into a block of `bytes` bytes and return the event at the copy's end. The block is
  /// free once its last owner is gone and the copy has ended.
  [[nodiscard]] Copy start_copy(std::size_t bytes, const auto& copy) {
    auto block = free_block(bytes);
    auto* const data = block.data.get();
    block.end = copy(data);
    const auto end = block.end;
    return {{data,
             [pool = shared_from_this(), bytes, block = std::move(block)](std::byte*) {
               const std::lock_guard lock(pool->mutex_);
               pool->free_[bytes].push_back(block);
             }},
            end};
  }

 private:
  [[nodiscard]] Copy free_block(std::size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      auto& free = free_[bytes];
      const auto found = std::find_if(free.begin(), free.end(),
                                      [](const Copy& block) { return block.end.passed(); });
      if (found != free.end()) {
        auto block = std::move(*found);
        free.erase(found);
        return block;
      }
    }
    return {allocate_pinned(bytes), {}};
  }

  std::mutex mutex_;
  std::map<std::size_t, std::vector<Copy>> free_;  // by size; copies into them may still run
};

class PinnedRing {
 public:
  explicit PinnedRing(std::size_t bytes) : size_(bytes), data_(allocate_pinned(bytes)) {
    check(bytes >= 512, "a device needs 512 or more pinned bytes, got ", bytes);
  }

  /// Returns the most bytes that take() accepts.
  [[nodiscard]] std::size_t largest_bytes() const { return size_ / 2; }

  /// Waits until `bytes` bytes, at most largest_bytes(), are free and returns them. Issue the copy, then call
  /// release().
  [[nodiscard]] std::byte* take(std::size_t bytes) {
    const std::size_t wanted = (bytes + 255) / 256 * 256;
    if (head_ + wanted > size_) {
      // The pieces from head_ to the end of the ring belong to the previous round, so they finish first.
      while (!pieces_.empty() && pieces_.front().first >= head_) finish_oldest();
      head_ = 0;
    }
    const std::size_t first = head_;
    while (!pieces_.empty() && overlaps(pieces_.front(), first, first + wanted)) finish_oldest();
    head_ = first + wanted;
    pieces_.push_back({first, first + wanted, {}});
    return data_.get() + first;
  }
  /// Returns the offset of a piece in the ring, in bytes.
  [[nodiscard]] std::size_t place_of(const std::byte* piece) const {
    return as_size(piece - data_.get());
  }
  [[nodiscard]] std::size_t size() const { return size_; }
  /// Keeps the last piece in use until `stream` has passed this point.
  void release(cudaStream_t stream) { pieces_.back().event = CudaEvent::recorded(stream); }

 private:
  struct Piece {
    std::size_t first, last;
    CudaEvent event;
  };
  void finish_oldest() {
    pieces_.front().event.wait();
    pieces_.pop_front();
  }
  static bool overlaps(const Piece& piece, std::size_t first, std::size_t last) {
    return piece.first < last && first < piece.last;
  }

  std::size_t size_;
  std::shared_ptr<std::byte> data_;
  std::size_t head_ = 0;
  std::deque<Piece> pieces_;  // in ring order, which is stream order
};
}  // namespace dhp::detail
