// EpochOrder: the order of an epoch's samples. It is random over all samples or, for local reads, consists of blocks of
// neighbors in random order, shuffled within windows. It is a pure function of (seed, epoch, position).
#pragma once

#include <dhp/data/permutation.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace dhp::detail {
/// A block has about sqrt(window) consecutive samples, so a window has as many blocks as a block has samples. The
/// positions [w * window, (w + 1) * window) touch at most ceil(window / block()) + 2 blocks.
class EpochOrder {
 public:
  /// window: number of samples; 0 or the dataset's size means one random order over all samples.
  EpochOrder(std::int64_t size, std::int64_t window, std::uint64_t seed, std::int64_t epoch)
      : size_(size),
        window_(window <= 0 || window >= size ? 0 : window),
        block_(block_of(window_)),
        seed_(seed),
        epoch_(epoch),
        blocks_(window_ == 0 ? size : size / block_, seed, epoch) {
    // Full blocks are permuted; the remaining samples are inserted between two of them.
    if (window_ > 0) rest_at_ = block_ * Permutation(blocks_.size() + 1, seed + mix(0), epoch)(0);
  }

  [[nodiscard]] std::int64_t size() const { return size_; }
  /// Returns the number of samples in a block.
  [[nodiscard]] std::int64_t block() const { return block_; }

  /// Returns the sample at `place`; both are in [0, size).
  [[nodiscard]] std::int64_t operator()(std::int64_t place) const {
    if (window_ == 0) return blocks_(place);
    check(place >= 0 && place < size_, "no place ", place, " in an order of ", size_);
    const auto first = place / window_ * window_;
    const Permutation inside(std::min(window_, size_ - first),
                             seed_ + mix(static_cast<std::uint64_t>(place / window_ + 1)), epoch_);
    const auto at = first + inside(place - first);
    const auto rest = size_ % block_;
    if (at >= rest_at_ && at < rest_at_ + rest) return size_ - rest + at - rest_at_;
    const auto of_blocks = at < rest_at_ ? at : at - rest;
    return blocks_(of_blocks / block_) * block_ + of_blocks % block_;
  }

 private:
  [[nodiscard]] static std::int64_t block_of(std::int64_t window) {
    return std::max<std::int64_t>(1, std::llround(std::sqrt(static_cast<double>(window))));
  }

  std::int64_t size_, window_, block_;
  std::uint64_t seed_;
  std::int64_t epoch_;
  Permutation blocks_;
  std::int64_t rest_at_ = 0;
};
}  // namespace dhp::detail
