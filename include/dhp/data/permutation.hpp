// Permutation: a random order of samples, computed as a function that stores no list. A Feistel network with Philox
// rounds permutes [0, 2^k); cycle walking restricts it to [0, n) (Black and Rogaway, "Ciphers with arbitrary finite
// domains", CT-RSA 2002). Every rank computes any position of any epoch by itself.
#pragma once

#include <dhp/core/error.hpp>
#include <dhp/data/sample_random.hpp>

#include <bit>
#include <cstdint>

namespace dhp {

class Permutation {
 public:
  Permutation(std::int64_t size, std::uint64_t seed, std::int64_t epoch)
      : size_(size), stream_(detail::data_stream(seed, epoch, DataUse::order)) {
    check(size >= 0, "a permutation cannot have ", size, " elements");
    const int bits =
        size < 2 ? 0 : static_cast<int>(std::bit_width(static_cast<std::uint64_t>(size - 1)));
    low_bits_ = bits / 2;
    high_mask_ = (std::uint64_t{1} << (bits - low_bits_)) - 1;
    low_mask_ = (std::uint64_t{1} << low_bits_) - 1;
  }

  [[nodiscard]] std::int64_t size() const { return size_; }

  /// Returns the element at `place`; both are in [0, size).
  [[nodiscard]] std::int64_t operator()(std::int64_t place) const {
    check(place >= 0 && place < size_, "no place ", place, " in an order of ", size_);
    auto value = static_cast<std::uint64_t>(place);
    do {  // fewer than two rounds on average: the domain is less than twice the size
      value = scramble(value);
    } while (value >= static_cast<std::uint64_t>(size_));
    return static_cast<std::int64_t>(value);
  }

 private:
  static constexpr std::uint64_t rounds = 10;

  [[nodiscard]] std::uint64_t scramble(std::uint64_t value) const {
    std::uint64_t low = value & low_mask_;
    std::uint64_t high = value >> low_bits_;
    for (std::uint64_t round = 0; round < rounds; round += 2) {
      high ^= word(round, low) & high_mask_;
      low ^= word(round + 1, high) & low_mask_;
    }
    return high << low_bits_ | low;
  }
  [[nodiscard]] std::uint64_t word(std::uint64_t round, std::uint64_t half) const {
    return stream_.block(round << 32 | half)[0];
  }

  std::int64_t size_;
  RandomStream stream_;
  int low_bits_ = 0;
  std::uint64_t high_mask_ = 0, low_mask_ = 0;
};

}  // namespace dhp
