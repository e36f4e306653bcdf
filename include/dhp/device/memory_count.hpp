// MemoryCount: the bytes that a device's allocator has in use and holds in total. size_class: rounds sizes, so that
// similar sizes share allocations and tuning results.
#pragma once

#include <dhp/core/config.hpp>

#include <algorithm>
#include <bit>
#include <mutex>
#include <type_traits>

namespace dhp::detail {
/// Rounds `size` up to a multiple of a step: an eighth of the power of two below `size`, but at least min_step (a
/// power of two). Above 8 * min_step, rounding adds less than 12.5 %.
template <class Size>
[[nodiscard]] constexpr Size size_class(Size size, std::type_identity_t<Size> min_step) {
  const auto positive = std::max<Size>(size, 1);
  const auto eighth = std::bit_floor(as_size(positive - 1)) / 8;
  const auto step = std::max(min_step, static_cast<Size>(eighth));
  return (positive + step - 1) / step * step;
}

/// Counts bytes. All functions are thread-safe.
class MemoryCount {
 public:
  /// Returns the bytes of the blocks that tensors use.
  [[nodiscard]] std::size_t in_use_bytes() const {
    const std::lock_guard lock(mutex_);
    return in_use_;
  }
  /// Returns the bytes of the blocks that tensors use and of cached free blocks.
  [[nodiscard]] std::size_t held_bytes() const {
    const std::lock_guard lock(mutex_);
    return held_;
  }
  [[nodiscard]] std::size_t max_held_bytes() const {
    const std::lock_guard lock(mutex_);
    return max_held_;
  }

 protected:
  ~MemoryCount() = default;

  /// Counts a block that a tensor starts to use. fresh: newly allocated instead of taken from the cache.
  void count_used(std::size_t bytes, bool fresh) {
    const std::lock_guard lock(mutex_);
    in_use_ += bytes;
    if (fresh) held_ += bytes;
    max_held_ = std::max(max_held_, held_);
  }
  /// Counts a block that a tensor stops using. kept: the block is now cached.
  void count_freed(std::size_t bytes, bool kept) {
    const std::lock_guard lock(mutex_);
    in_use_ -= bytes;
    if (!kept) held_ -= bytes;
  }
  /// Counts cached blocks that were freed.
  void count_returned(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    held_ -= bytes;
  }

 private:
  mutable std::mutex mutex_;
  std::size_t in_use_ = 0, held_ = 0, max_held_ = 0;
};
}  // namespace dhp::detail
