// Prefetches the next parts of A and B while a product multiplies the present ones.
#pragma once

#include <dhp/core/config.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace dhp::detail::cpu {

/// `count` lines of memory. `bytes`: length of a line; `stride`: bytes from one line to the next.
struct Lines {
  const std::byte* at = nullptr;
  std::int64_t count = 0, bytes = 0, stride = 0;
};
/// Prefetches lines into the L2 cache little by little, in every fourth step of a product along k. Many prefetches at
/// once would wait for each other, and a prefetch in every step would cost more than it gains.
class Prefetcher {
 public:
  static constexpr int every = 4;

  Prefetcher() = default;
  /// steps: the number of calls of step() before the lines are needed.
  Prefetcher(Lines of, std::int64_t steps) {
    if (of.count <= 0 || steps <= 0) return;
    if (of.stride == of.bytes) of = {of.at, 1, of.count * of.bytes, 0};
    at_ = of.at;
    end_ = of.at + of.bytes;
    next_ = of.stride - of.bytes;
    pace_ = std::min<std::int64_t>(128, of.count * of.bytes / steps + 1);
    left_ = of.count - 1;
    bytes_ = of.bytes;
  }
  [[gnu::always_inline]] void step() {
    __builtin_prefetch(at_, 0, 2);
    __builtin_prefetch(at_ + 64, 0, 2);
    at_ += pace_;
    if (at_ >= end_) next_line();
  }

 private:
  [[gnu::always_inline]] void next_line() {
    if (left_-- <= 0) *this = {};
    else at_ = end_ + next_, end_ = at_ + bytes_;
  }
  static constexpr std::byte nothing{};

  const std::byte *at_ = &nothing, *end_ = &nothing + 1;
  std::int64_t next_ = 0;  // bytes from the end of a line to the next line
  std::int64_t pace_ = 0, left_ = 0, bytes_ = 0;
};
/// The parts of A and B that are prefetched while panels are multiplied.
struct Prefetch {
  Prefetcher a, b;
  [[gnu::always_inline]] void step() {
    a.step();
    b.step();
  }
};

}  // namespace dhp::detail::cpu
