// MemoryCount: what an allocator has in use and holds, counted by the allocators of all devices.
#pragma once

#include <dhp/core/config.hpp>

#include <algorithm>
#include <cstddef>
#include <mutex>

namespace dhp::detail {
/// In bytes. For any threads.
class MemoryCount {
 public:
  /// Of tensors, rounded up to size classes.
  [[nodiscard]] std::size_t in_use_bytes() const {
    const std::lock_guard lock(mutex_);
    return in_use_;
  }
  /// Of tensors, and of free blocks that are kept for others. With a host program's memory, of tensors only.
  [[nodiscard]] std::size_t held_bytes() const {
    const std::lock_guard lock(mutex_);
    return held_;
  }
  [[nodiscard]] std::size_t most_held_bytes() const {
    const std::lock_guard lock(mutex_);
    return most_held_;
  }

 protected:
  ~MemoryCount() = default;

  /// A tensor begins to use a block. fresh: it was not among the free ones.
  void count_used(std::size_t bytes, bool fresh) {
    const std::lock_guard lock(mutex_);
    in_use_ += bytes;
    if (fresh) held_ += bytes;
    most_held_ = std::max(most_held_, held_);
  }
  /// A tensor no longer uses a block. kept: it is a free one now.
  void count_freed(std::size_t bytes, bool kept) {
    const std::lock_guard lock(mutex_);
    in_use_ -= bytes;
    if (!kept) held_ -= bytes;
  }
  /// Free blocks have gone back to where they came from.
  void count_returned(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    held_ -= bytes;
  }

 private:
  mutable std::mutex mutex_;
  std::size_t in_use_ = 0;
  std::size_t held_ = 0;
  std::size_t most_held_ = 0;
};
}  // namespace dhp::detail
