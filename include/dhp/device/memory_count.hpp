// MemoryCount: an allocator's memory in use and in total, on all devices.
#pragma once

#include <dhp/core/config.hpp>

#include <algorithm>
#include <mutex>

namespace dhp::detail {
/// In bytes. For any threads.
class MemoryCount {
 public:
  /// Bytes of tensors, rounded up to size classes.
  [[nodiscard]] std::size_t in_use_bytes() const {
    const std::lock_guard lock(mutex_);
    return in_use_;
  }
  /// Bytes of tensors and of cached free blocks. With a host program's memory, of tensors only.
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

  /// A tensor starts to use a block. fresh: newly allocated, not cached.
  void count_used(std::size_t bytes, bool fresh) {
    const std::lock_guard lock(mutex_);
    in_use_ += bytes;
    if (fresh) held_ += bytes;
    most_held_ = std::max(most_held_, held_);
  }
  /// A tensor stops using a block. kept: it is now cached.
  void count_freed(std::size_t bytes, bool kept) {
    const std::lock_guard lock(mutex_);
    in_use_ -= bytes;
    if (!kept) held_ -= bytes;
  }
  /// Cached blocks were returned to their source.
  void count_returned(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    held_ -= bytes;
  }

 private:
  mutable std::mutex mutex_;
  std::size_t in_use_ = 0, held_ = 0, most_held_ = 0;
};
}  // namespace dhp::detail
