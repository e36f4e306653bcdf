// Random numbers for data: a pure function of (seed, epoch, sample index, use). So order,
// augmentation and masking do not depend on ranks, threads or the step at which a run was resumed.
#pragma once

#include <dhp/core/rng.hpp>

#include <cstdint>

namespace dhp {

/// What a random number is for; two uses never share one. Your own uses: from `user` on.
enum class DataUse : std::uint32_t { order, augment, mask, pair, synthesize, user = 1000 };

/// The stream of one use in one epoch. Its seed is set apart from that of weights and dropout.
[[nodiscard]] constexpr RandomStream data_stream(std::uint64_t seed, std::int64_t epoch,
                                                 DataUse use) {
  return {mix(seed ^ 0x6461'7461'2D73'6964u), static_cast<std::uint32_t>(epoch),
          static_cast<std::uint32_t>(use)};
}

/// The random numbers of one sample in one epoch, drawn one after the other: up to 2^22 of them.
class SampleRandom {
 public:
  constexpr SampleRandom(std::uint64_t seed, std::int64_t epoch, std::int64_t sample, DataUse use)
      : stream_(data_stream(seed, epoch, use)), next_(static_cast<std::uint64_t>(sample) << 22) {}

  constexpr std::uint32_t bits() { return stream_.bits(next_++); }
  /// Uniform in [0, 1).
  constexpr double uniform() { return stream_.uniform(next_++); }
  constexpr double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// Uniform integer in [0, bound).
  constexpr std::uint32_t below(std::uint32_t bound) { return stream_.below(bound, next_++); }
  /// True with that probability.
  constexpr bool chance(double probability) { return uniform() < probability; }
  /// Standard normal. Uses the four words of a block.
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
