// concept Dataset: a size and a pure function from index to sample; adaptors slice, shuffle, map,
// split. get() is pure and const, so any thread reads any sample in any order, and a run can resume
// at any step.
#pragma once

#include <dhp/core/error.hpp>
#include <dhp/data/permutation.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace dhp {

/// get(index), index in [0, size()), is pure and thread-safe. Datasets are cheap to copy and share
/// large data.
template <class D>
concept Dataset = std::copy_constructible<D> && requires(const D& data, std::int64_t index) {
  typename D::Sample;
  { data.size() } -> std::convertible_to<std::int64_t>;
  { data.get(index) } -> std::same_as<typename D::Sample>;
};

inline void check_sample_index(std::int64_t index, std::int64_t size) {
  check(index >= 0 && index < size, "no sample ", index, " in a dataset of ", size);
}

/// Samples [first, last) of a dataset.
template <Dataset D>
class Slice {
 public:
  using Sample = typename D::Sample;
  Slice(D data, std::int64_t first, std::int64_t last)
      : data_(std::move(data)), first_(first), last_(last) {
    check(0 <= first && first <= last && last <= data_.size(), "no slice [", first, ", ", last,
          ") in a dataset of ", std::int64_t{data_.size()});
  }
  [[nodiscard]] std::int64_t size() const { return last_ - first_; }
  [[nodiscard]] Sample get(std::int64_t index) const {
    check_sample_index(index, size());
    return data_.get(first_ + index);
  }

 private:
  D data_;
  std::int64_t first_;
  std::int64_t last_;
};

/// A dataset in permuted order.
template <Dataset D>
class Shuffled {
 public:
  using Sample = typename D::Sample;
  Shuffled(D data, std::uint64_t seed, std::int64_t epoch)
      : data_(std::move(data)), order_(data_.size(), seed, epoch) {}
  [[nodiscard]] std::int64_t size() const { return order_.size(); }
  [[nodiscard]] Sample get(std::int64_t index) const { return data_.get(order_(index)); }

 private:
  D data_;
  Permutation order_;
};

/// A dataset with a function applied to each sample.
template <Dataset D, class Function>
class Mapped {
 public:
  using Sample = std::remove_cvref_t<std::invoke_result_t<const Function&, typename D::Sample>>;
  Mapped(D data, Function function) : data_(std::move(data)), function_(std::move(function)) {}
  [[nodiscard]] std::int64_t size() const { return data_.size(); }
  [[nodiscard]] Sample get(std::int64_t index) const { return function_(data_.get(index)); }

 private:
  D data_;
  Function function_;
};

template <Dataset D>
[[nodiscard]] Slice<D> slice(D data, std::int64_t first, std::int64_t last) {
  return Slice<D>(std::move(data), first, last);
}
/// Shuffled for epoch `epoch` under `seed`, identically on every rank.
template <Dataset D>
[[nodiscard]] Shuffled<D> shuffle(D data, std::uint64_t seed, std::int64_t epoch) {
  return Shuffled<D>(std::move(data), seed, epoch);
}
template <Dataset D, class Function>
[[nodiscard]] Mapped<D, Function> map(D data, Function function) {
  return Mapped<D, Function>(std::move(data), std::move(function));
}
template <class D>
struct DatasetSplit {
  D train;
  D held_out;
};
/// Holds out the last `held_out` samples. Shuffle first if the samples are sorted.
template <Dataset D>
[[nodiscard]] DatasetSplit<Slice<D>> split_off(D data, std::int64_t held_out) {
  const std::int64_t size = data.size();
  check(held_out >= 0 && held_out <= size, "cannot hold out ", held_out, " of ", size, " samples");
  return {slice(data, 0, size - held_out), slice(data, size - held_out, size)};
}
/// The same as a fraction in [0, 1]; at least one sample unless the fraction is 0.
template <Dataset D>
[[nodiscard]] DatasetSplit<Slice<D>> split_fraction(D data, double fraction) {
  check(fraction >= 0 && fraction <= 1, "a held-out fraction lies in [0, 1], got ", fraction);
  const std::int64_t size = data.size();
  const auto wanted = static_cast<std::int64_t>(fraction * static_cast<double>(size));
  const auto least = std::min<std::int64_t>(fraction > 0 ? 1 : 0, size);
  return split_off(std::move(data), std::clamp(wanted, least, size));
}

}  // namespace dhp
