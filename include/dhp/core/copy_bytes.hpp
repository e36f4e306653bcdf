// copy_bytes(): a cache-friendly, chunked memcpy for data that is read soon after. For large sizes memcpy bypasses the
// cache or uses instructions that are slow on cached memory.
#pragma once

#include <dhp/core/config.hpp>

#include <algorithm>
#include <cstring>

namespace dhp::detail {
/// Copies between ranges that are equal or disjoint. With 0 bytes both pointers may be null.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (to == from) return;
  // Chunks of this size were 10 to 30 % faster than one memcpy of 2 MiB or more (measured on two cores).
  constexpr std::size_t run = 1 << 17;
  for (std::size_t first = 0; first < bytes; first += run)
    std::memcpy(to + first, from + first, std::min(run, bytes - first));
}
}  // namespace dhp::detail
