// Shape: up to six extents, row-major. Images are [N, H, W, C], tokens [rows, C], weights of linear layers [out, in],
// and weights of convolutions [out, KH, KW, in].
#pragma once

#include <dhp/core/error.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace dhp {

class Shape {
 public:
  static constexpr int max_rank = 6;

  Shape() = default;
  [[gnu::noinline]] Shape(std::initializer_list<std::int64_t> extents) {
    check(extents.size() <= max_rank, "a shape has at most 6 extents");
    for (const auto extent : extents) append(extent);
    check_countable();
  }

  void push_back(std::int64_t extent) {
    check(rank_ < max_rank, "a shape has at most 6 extents");
    append(extent);
    check_countable();
  }

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] std::int64_t operator[](int dim) const {
    if (dim < 0 || dim >= rank_) [[unlikely]]
      has_no(dim);
    return extents_[detail::as_size(dim)];
  }
  [[nodiscard]] std::int64_t back() const { return (*this)[rank_ - 1]; }
  [[nodiscard]] const std::int64_t* begin() const { return extents_.data(); }
  [[nodiscard]] const std::int64_t* end() const { return extents_.data() + rank_; }

  /// Returns the number of elements, which is 1 for rank 0 (a scalar).
  [[nodiscard]] std::int64_t count() const {
    std::int64_t product = 1;
    for (const auto extent : *this) product *= extent;
    return product;
  }
  /// Returns the product of all dims but the last: [N, H, W, C] has N*H*W rows.
  [[nodiscard]] std::int64_t rows() const { return back() == 0 ? 0 : count() / back(); }

  [[nodiscard, gnu::noinline]] Shape with(int dim, std::int64_t extent) const {
    if (dim < 0 || dim >= rank_) has_no(dim);
    Shape changed = *this;
    changed.extents_[detail::as_size(dim)] = extent;
    changed.check_countable();
    return changed;
  }

  friend bool operator==(const Shape&, const Shape&) = default;

  friend std::string to_text(const Shape& shape) {
    std::string out = "[";
    for (int dim = 0; dim < shape.rank_; ++dim) {
      if (dim > 0) out += ", ";
      detail::append_text(out, shape[dim]);
    }
    return out + "]";
  }

 private:
  [[noreturn, gnu::cold, gnu::noinline]] void has_no(int dim) const {
    fail("no dim ", dim, " in a shape of rank ", rank_);
  }
  void append(std::int64_t extent) {
    check(extent >= 0, "an extent is never negative, got ", extent);
    extents_[detail::as_size(rank_++)] = extent;
  }
  // The limit of 2^56 leaves room for byte counts and for rounding errors of this product.
  void check_countable() const {
    double product = 1;
    for (const auto extent : *this)
      product *= static_cast<double>(std::max<std::int64_t>(extent, 1));
    check(product <= 0x1p56, "a tensor of shape ", *this, " would have more than 2^56 elements");
  }

  std::array<std::int64_t, max_rank> extents_{};  // unused extents stay 0, so == is memberwise
  int rank_ = 0;
};

/// The half-open interval [first, last) of indices in one dim.
struct Range {
  std::int64_t first = 0, last = 0;
  [[nodiscard]] std::int64_t size() const { return last - first; }
  friend bool operator==(const Range&, const Range&) = default;
};

/// Returns part `index` of [0, extent) split into `parts` parts. The first extent % parts parts are one longer.
[[nodiscard]] inline Range part_of(std::int64_t extent, int parts, int index) {
  check(0 <= index && index < parts, "no part ", index, " of ", parts);
  const std::int64_t base = extent / parts;
  const std::int64_t extra = extent % parts;
  const std::int64_t first = index * base + (index < extra ? index : extra);
  return {first, first + base + (index < extra ? 1 : 0)};
}

}  // namespace dhp
