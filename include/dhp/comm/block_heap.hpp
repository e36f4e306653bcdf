// BlockHeap: which parts of a long stretch of memory are taken. It knows offsets only, so that what it deals out can lie
// in memory that others see at other addresses. What was given back last is dealt out first: it is still in the cache.
#pragma once

#include <dhp/core/error.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <vector>

namespace dhp {

/// Blocks have powers of two of bytes, and stay that long: training asks for the same sizes again and again.
class BlockHeap {
 public:
  explicit BlockHeap(std::size_t bytes) : bytes_(bytes) {}

  /// The offset of at least so many bytes, aligned to 64. Throws Error when there are no more.
  [[nodiscard]] std::size_t take(std::size_t bytes) {
    const auto order = order_of(bytes);
    check(order < 63, "no room for ", bytes, " more bytes in ", bytes_, " of shared memory");
    auto& free = free_[order];
    if (!free.empty()) {
      const auto offset = free.back();
      free.pop_back();
      return offset;
    }
    const auto size = std::size_t{1} << order;
    check(size <= bytes_ - used_, "no room for ", bytes, " more bytes in ", bytes_,
          " of shared memory");
    const auto offset = used_;
    used_ += size;
    return offset;
  }
  /// As taken, with as many bytes.
  void give_back(std::size_t offset, std::size_t bytes) {
    free_[order_of(bytes)].push_back(offset);
  }

  static constexpr std::size_t alignment = 64;

 private:
  [[nodiscard]] static std::size_t order_of(std::size_t bytes) {
    return static_cast<std::size_t>(std::bit_width(bytes > alignment ? bytes - 1 : alignment - 1));
  }
  std::size_t bytes_;
  std::size_t used_ = 0;
  std::array<std::vector<std::size_t>, 65> free_;  // by order
};

}  // namespace dhp
