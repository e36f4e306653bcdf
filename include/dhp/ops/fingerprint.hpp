// Fingerprints: one number for the bits of a tensor, to compare the results of ranks. Fingerprints of exact sums
// (ops/exact_sum.hpp) are linear: the fingerprints of summands add up to the fingerprint of their sum, like the
// checksums of Huang & Abraham 1984, "Algorithm-based fault tolerance for matrix operations".
#pragma once

#include <dhp/core/rng.hpp>
#include <dhp/ops/checks.hpp>

#include <cstdint>

namespace dhp {

/// sum, i64 [1], += times * (sum over i of the bits of x[i] as an unsigned integer * fingerprint_factor(first + i)),
/// modulo 2^64. x has any type; first: the index of x's first element. One flipped bit of x always changes the sum.
template <Device Dev>
void fingerprint(Dev& dev, InView<Dev> x, std::int64_t first, OutView<Dev> sum,
                 std::int64_t times = 1) {
  detail::check_one("fingerprint: the sum", sum, DType::i64);
  if (x.count() > 0) fingerprint_on(dev, x, first, sum, times);
}

namespace detail {
/// Returns the factor of an element. It is odd, so that a flip of any single bit changes the product.
[[nodiscard]] constexpr std::uint64_t fingerprint_factor(std::int64_t place) {
  return mix(static_cast<std::uint64_t>(place)) | 1;
}

/// Calls body(pointer to the elements of x as unsigned integers of their size).
void visit_bits(auto x, auto body) {
  switch (size_of(x.dtype())) {
    case 1: return body(reinterpret_cast<const std::uint8_t*>(x.bytes()));
    case 2: return body(reinterpret_cast<const std::uint16_t*>(x.bytes()));
    case 4: return body(reinterpret_cast<const std::uint32_t*>(x.bytes()));
    default: return body(reinterpret_cast<const std::uint64_t*>(x.bytes()));
  }
}

}  // namespace detail
}  // namespace dhp
