// Prefetches what a product needs next while it multiplies what it has.
#pragma once

#include <dhp/core/config.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace dhp::detail::cpu {

/// Memory as lines, with their length and distance in bytes.
struct Lines {
  const std::byte* at = nullptr;
  std::int64_t count = 0, bytes = 0, stride = 0;
};
/// Prefetches lines into the L2 cache little by little, in each fourth step along k of products: many prefetches at
/// once wait for each other, and one in each step costs more than it gains.
class Ahead {
 public:
  static constexpr int every = 4;

  Ahead() = default;
  /// steps: the number of calls of step() before the lines are needed.
  Ahead(Lines of, std::int64_t steps) {
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
/// What is prefetched while panels are multiplied: the parts of A and B that are needed next.
struct Soon {
  Ahead a, b;
  [[gnu::always_inline]] void step() {
    a.step();
    b.step();
  }
};

}  // namespace dhp::detail::cpu
