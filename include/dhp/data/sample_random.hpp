// Random numbers for data are a pure function of (seed, epoch, sample index, use). So order, augmentation and masking
// do not depend on ranks or threads, and a resumed run repeats them.
#pragma once

#include <dhp/core/rng.hpp>

#include <cstdint>

namespace dhp {

/// The purpose of a random number; numbers of different uses are independent. Your own uses start at `user`.
enum class DataUse : std::uint32_t { order, augment, mask, pair, synthesize, user = 1000 };

namespace detail {
/// Returns the stream of one use in one epoch. It is independent of the streams for weights and dropout.
[[nodiscard]] constexpr RandomStream data_stream(std::uint64_t seed, std::int64_t epoch,
                                                 DataUse use) {
  return {mix(seed ^ 0x6461'7461'2D73'6964u), static_cast<std::uint32_t>(epoch),
          static_cast<std::uint32_t>(use)};
}
}  // namespace detail

/// The random numbers of one sample in one epoch, up to 2^22 of them.
class SampleRandom {
 public:
  constexpr SampleRandom(std::uint64_t seed, std::int64_t epoch, std::int64_t sample, DataUse use)
      : stream_(detail::data_stream(seed, epoch, use)),
        next_(static_cast<std::uint64_t>(sample) << 22) {}

  constexpr std::uint32_t bits() { return stream_.bits(next_++); }
  constexpr double uniform() { return stream_.uniform(next_++); }
  constexpr double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// Returns a uniform integer in [0, bound).
  constexpr std::uint32_t below(std::uint32_t bound) { return stream_.below(bound, next_++); }
  constexpr bool chance(double probability) { return uniform() < probability; }
  /// Returns a standard normal number; consumes a block of four words.
  double normal() {
    next_ = (next_ + 3) / 4 * 4;
    const double value = stream_.normal(next_ / 4);
    next_ += 4;
    return value;
  }

 private:
  RandomStream stream_;
  std::uint64_t next_;
};

}  // namespace dhp
