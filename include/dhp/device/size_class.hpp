// Size classes: similar sizes share allocations and tuning results.
#pragma once

#include <dhp/core/config.hpp>

#include <algorithm>
#include <bit>
#include <type_traits>

namespace dhp::detail {
/// Rounds `size` up to its class: a multiple of least_step (a power of two), or of an eighth of the power of two below
/// `size` if that is larger. A doubling has eight classes, so rounding adds at most 12.5 %.
template <class Size>
[[nodiscard]] constexpr Size size_class(Size size, std::type_identity_t<Size> least_step) {
  const auto positive = std::max<Size>(size, 1);
  const auto eighth = std::bit_floor(as_size(positive - 1)) / 8;
  const auto step = std::max(least_step, static_cast<Size>(eighth));
  return (positive + step - 1) / step * step;
}
}  // namespace dhp::detail
