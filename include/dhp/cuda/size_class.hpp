// Size classes: a choice that was tuned for one size is used for similar ones, because batch sizes
// vary.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace dhp::cuda {

/// The largest size in the class of `size`: the next multiple of an eighth of the power of two
/// below it, but at least of least_step, a power of two. So a power of two ends a class, and a
/// doubling has eight classes.
[[nodiscard]] constexpr std::int64_t size_class(std::int64_t size, std::int64_t least_step) {
  const auto positive = std::max<std::int64_t>(size, 1);
  const auto above = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(positive)));
  const auto step = std::max(least_step, above / 16);
  return (positive + step - 1) / step * step;
}

}  // namespace dhp::cuda
