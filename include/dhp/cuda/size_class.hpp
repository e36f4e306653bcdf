// Classes of sizes: what is found out for one size is used for those near it, where each batch has another one.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace dhp::cuda {

/// The largest size of the class of `size`: the next multiple of an eighth of the power of two below it, but of
/// least_step at least, a power of two. So powers of two end a class, and there are eight between two of them.
[[nodiscard]] constexpr std::int64_t size_class(std::int64_t size, std::int64_t least_step) {
  const auto positive = std::max<std::int64_t>(size, 1);
  const auto above = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(positive)));
  const auto step = std::max(least_step, above / 16);
  return (positive + step - 1) / step * step;
}

}  // namespace dhp::cuda
