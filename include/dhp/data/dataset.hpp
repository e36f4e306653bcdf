// The concept Dataset: a size and a pure function from index to sample. Adaptors slice, shuffle and split datasets.
// Because get() is pure, any thread reads any sample in any order, and a run can resume at any step.
#pragma once

#include <dhp/core/error.hpp>
#include <dhp/data/permutation.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <utility>

namespace dhp {

/// get(index), with index in [0, size()), is pure and thread-safe. Datasets are cheap to copy.
template <class D>
concept Dataset = std::copy_constructible<D> && requires(const D& data, std::int64_t index) {
  typename D::Sample;
  { data.size() } -> std::convertible_to<std::int64_t>;
  { data.get(index) } -> std::same_as<typename D::Sample>;
};

namespace detail {
/// A dataset that can read a sample's label without the rest of the sample.
template <class D>
concept HasLabels = requires(const D& data, std::int64_t index) {
  { data.label(index) } -> std::same_as<std::int32_t>;
};

inline void check_sample_index(std::int64_t index, std::int64_t size) {
  check(index >= 0 && index < size, "no sample ", index, " in a dataset of ", size);
}
/// Another order of a dataset's samples: sample `index` is the dataset's sample order(index). order() checks the index.
template <Dataset D, class Order>
class Reordered {
 public:
  using Sample = typename D::Sample;
  Reordered(D data, Order order) : data_(std::move(data)), order_(std::move(order)) {}
  [[nodiscard]] std::int64_t size() const { return order_.size(); }
  [[nodiscard]] Sample get(std::int64_t index) const { return data_.get(order_(index)); }
  /// Reads a part of an image, if the dataset can decode parts.
  template <class Part>
  [[nodiscard]] auto get(std::int64_t index, const Part& part) const
      -> decltype(std::declval<const D&>().get(index, part)) {
    return data_.get(order_(index), part);
  }
  [[nodiscard]] std::int32_t label(std::int64_t index) const requires HasLabels<D> {
    return data_.label(order_(index));
  }
  [[nodiscard]] const Order& order() const { return order_; }

 private:
  D data_;
  Order order_;
};
struct SliceOrder {
  std::int64_t first, last;
  [[nodiscard]] std::int64_t size() const { return last - first; }
  [[nodiscard]] std::int64_t operator()(std::int64_t index) const {
    check_sample_index(index, size());
    return first + index;
  }
};
/// One part of a split of `all` samples. The h held-out samples are evenly spaced: the k-th is number (k all + shift) /
/// h, with shift in [0, all). Each part keeps the dataset's order, so neighbors stay close.
struct EvenOrder {
  std::int64_t all, held_out, shift;
  bool is_held_out;
  [[nodiscard]] std::int64_t size() const { return is_held_out ? held_out : all - held_out; }
  [[nodiscard]] std::int64_t operator()(std::int64_t index) const {
    check_sample_index(index, size());
    if (is_held_out) return (index * all + shift) / held_out;
    if (held_out == 0) return index;
    // c held-out samples come before this one: the least c with (c all + shift) / h > index + c.
    const auto over = (index + 1) * held_out - shift;
    return over <= 0 ? index : index + (over - 1) / size() + 1;
  }
};
}  // namespace detail

/// Returns a dataset in the random order of epoch `epoch` under `seed`, the same on every rank.
template <Dataset D>
[[nodiscard]] detail::Reordered<D, Permutation> shuffled(D data, std::uint64_t seed,
                                                         std::int64_t epoch) {
  const Permutation order(data.size(), seed, epoch);
  return {std::move(data), order};
}

/// Returns samples [first, last) of a dataset.
template <Dataset D>
[[nodiscard]] detail::Reordered<D, detail::SliceOrder> slice(D data, std::int64_t first,
                                                             std::int64_t last) {
  check(0 <= first && first <= last && last <= data.size(), "no slice [", first, ", ", last,
        ") in a dataset of ", std::int64_t{data.size()});
  return {std::move(data), {first, last}};
}

template <class D>
struct DatasetSplit {
  D train, held_out;
};
/// Holds out the last samples, a fraction in [0, 1]: at least one sample unless the fraction is 0. Shuffle first if the
/// samples are sorted.
template <Dataset D>
[[nodiscard]] auto split_fraction(D data, double fraction) {
  check(fraction >= 0 && fraction <= 1, "a held-out fraction lies in [0, 1], got ", fraction);
  const std::int64_t size = data.size();
  const auto wanted = static_cast<std::int64_t>(fraction * static_cast<double>(size));
  const auto least = std::min<std::int64_t>(fraction > 0 ? 1 : 0, size);
  const auto first = size - std::clamp(wanted, least, size);
  return DatasetSplit{slice(data, 0, first), slice(data, first, size)};
}

/// Holds out a fraction in [0, 1] of the samples, evenly spaced from an offset that `seed` chooses: at least one sample
/// unless the fraction is 0.
template <Dataset D>
[[nodiscard]] auto split_evenly(const D& data, double fraction, std::uint64_t seed) {
  const auto held_out = split_fraction(data, fraction).held_out.size();
  const std::int64_t size = data.size();
  const auto shift = size == 0 ? 0 : Permutation(size, seed, -1)(0);
  const auto part = [&](bool is_held_out) {
    return detail::Reordered(data, detail::EvenOrder{size, held_out, shift, is_held_out});
  };
  return DatasetSplit{part(false), part(true)};
}

}  // namespace dhp
