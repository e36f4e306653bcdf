// concept Dataset: a size and a pure function from index to sample; adaptors slice, shuffle, split.
// Because get() is pure, any thread reads any sample in any order, and a run can resume at any step.
#pragma once

#include <dhp/core/error.hpp>
#include <dhp/data/permutation.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <utility>

namespace dhp {

/// get(index), index in [0, size()), is pure and thread-safe. Datasets are cheap to copy.
template <class D>
concept Dataset = std::copy_constructible<D> && requires(const D& data, std::int64_t index) {
  typename D::Sample;
  { data.size() } -> std::convertible_to<std::int64_t>;
  { data.get(index) } -> std::same_as<typename D::Sample>;
};

/// A dataset that can read a sample's label alone.
template <class D>
concept HasLabels = requires(const D& data, std::int64_t index) {
  { data.label(index) } -> std::same_as<std::int32_t>;
};

namespace detail {
inline void check_sample_index(std::int64_t index, std::int64_t size) {
  check(index >= 0 && index < size, "no sample ", index, " in a dataset of ", size);
}
}  // namespace detail

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
    detail::check_sample_index(index, size());
    return data_.get(first_ + index);
  }
  [[nodiscard]] std::int32_t label(std::int64_t index) const requires HasLabels<D> {
    detail::check_sample_index(index, size());
    return data_.label(first_ + index);
  }

 private:
  D data_;
  std::int64_t first_;
  std::int64_t last_;
};

/// A dataset in the random order of epoch `epoch` under `seed`, the same on every rank.
template <Dataset D>
class Shuffled {
 public:
  using Sample = typename D::Sample;
  Shuffled(D data, std::uint64_t seed, std::int64_t epoch)
      : data_(std::move(data)), order_(data_.size(), seed, epoch) {}
  [[nodiscard]] std::int64_t size() const { return order_.size(); }
  [[nodiscard]] Sample get(std::int64_t index) const { return data_.get(order_(index)); }
  [[nodiscard]] std::int32_t label(std::int64_t index) const requires HasLabels<D> {
    return data_.label(order_(index));
  }

 private:
  D data_;
  Permutation order_;
};

template <class D>
struct DatasetSplit {
  D train;
  D held_out;
};
/// Holds out the last part of the samples, a fraction in [0, 1]: at least one sample unless it is 0.
/// Shuffle first if the samples are sorted.
template <Dataset D>
[[nodiscard]] DatasetSplit<Slice<D>> split_fraction(D data, double fraction) {
  check(fraction >= 0 && fraction <= 1, "a held-out fraction lies in [0, 1], got ", fraction);
  const std::int64_t size = data.size();
  const auto wanted = static_cast<std::int64_t>(fraction * static_cast<double>(size));
  const auto least = std::min<std::int64_t>(fraction > 0 ? 1 : 0, size);
  const auto first = size - std::clamp(wanted, least, size);
  return {Slice<D>(data, 0, first), Slice<D>(data, first, size)};
}

namespace detail {
/// One part of a dataset whose held-out samples are evenly spaced, each part in the dataset's order, so neighbors
/// stay close.
template <Dataset D>
class EvenPart {
 public:
  using Sample = typename D::Sample;
  /// Held-out sample k of h is number (k n + shift) / h of all n; shift in [0, n).
  EvenPart(D data, std::int64_t held_out, std::int64_t shift, bool is_held_out)
      : data_(std::move(data)), held_out_(held_out), shift_(shift), is_held_out_(is_held_out) {
    const std::int64_t all = data_.size();
    check(0 <= held_out && held_out <= all && shift >= 0 && (shift < all || all == 0),
          "no even part of ", held_out, " samples of ", all);
  }
  [[nodiscard]] std::int64_t size() const {
    return is_held_out_ ? held_out_ : data_.size() - held_out_;
  }
  [[nodiscard]] Sample get(std::int64_t index) const { return data_.get(place(index)); }
  [[nodiscard]] std::int32_t label(std::int64_t index) const requires HasLabels<D> {
    return data_.label(place(index));
  }
  /// The dataset index of this part's sample `index`.
  [[nodiscard]] std::int64_t place(std::int64_t index) const {
    check_sample_index(index, size());
    if (is_held_out_) return (index * data_.size() + shift_) / held_out_;
    if (held_out_ == 0) return index;
    // The number c of held-out samples before it: the least c with (c n + shift) / h > index + c.
    const auto over = (index + 1) * held_out_ - shift_;
    return over <= 0 ? index : index + (over - 1) / size() + 1;
  }

 private:
  D data_;
  std::int64_t held_out_;
  std::int64_t shift_;
  bool is_held_out_;
};
}  // namespace detail

/// Holds out a fraction in [0, 1] of the samples, evenly spaced from an offset that `seed` chooses: at least one
/// unless it is 0.
template <Dataset D>
[[nodiscard]] DatasetSplit<detail::EvenPart<D>> split_evenly(const D& data, double fraction,
                                                             std::uint64_t seed) {
  const auto held_out = split_fraction(data, fraction).held_out.size();
  const std::int64_t size = data.size();
  const auto shift = size == 0 ? 0 : Permutation(size, seed, -1)(0);
  return {detail::EvenPart<D>(data, held_out, shift, false),
          detail::EvenPart<D>(data, held_out, shift, true)};
}

}  // namespace dhp
