// A Source presents a matrix of a product as lines in memory. MatrixSource holds a dense matrix, LinesSource a matrix
// whose lines begin anywhere, and ImageSource (conv2d.hpp) the images of a convolution.
#pragma once

#include <dhp/core/function_ref.hpp>
#include <dhp/cpu/convert.hpp>
#include <dhp/cpu/gemm_kernel.hpp>

#include <span>

namespace dhp::detail::cpu {

inline constexpr int max_runs = 40;  // the largest number of Runs of a panel
/// Returns whether lines with this stride can be read in place: at multiples of 4 KiB they compete for few sets of L1.
template <class T>
[[nodiscard]] bool spreads(std::int64_t stride) {
  return stride * static_cast<std::int64_t>(sizeof(T)) % 4096 != 0;
}

/// A matrix as lines along k or across k. It is an interface, so that products are compiled once for all kinds
/// of matrices.
template <class T>
class Source {
 public:
  /// Whether lines lie along k.
  const bool along_k;
  static constexpr std::int64_t whole = std::int64_t{1} << 40;  ///< see piece()

  /// Returns elements [first, first + count) of a line, in place or copied to scratch.
  virtual const T* run(std::int64_t line, std::int64_t first, std::int64_t count,
                       T* scratch) const = 0;
  /// Returns memory that is prefetched before a part of the matrix is read: elements [first, first + length) of `count`
  /// lines. It may be less than the part, or more.
  [[nodiscard]] virtual Lines lines(std::int64_t /*line*/, std::int64_t /*count*/,
                                    std::int64_t /*first*/, std::int64_t /*length*/) const {
    return {};
  }
  /// Like lines(), for rows or columns [start, start + across) and elements [p0, p0 + depth) along k.
  [[nodiscard]] Lines block(std::int64_t start, std::int64_t across, std::int64_t p0,
                            std::int64_t depth) const {
    if (depth <= 0) return {};
    return along_k ? lines(start, across, p0, depth) : lines(p0, depth, start, across);
  }
  /// If lines lie across k: returns the number of contiguous elements in each piece of a line, or `whole`.
  [[nodiscard]] virtual std::int64_t piece() const { return whole; }
  /// If lines lie across k: whether panel() makes runs of most panels. If not, the caller copies several at once.
  [[nodiscard]] virtual bool in_place() const { return false; }
  /// Copies elements [first, first + count) of several lines, `stride` apart.
  virtual void copy(std::int64_t line, std::int64_t lines, std::int64_t first, std::int64_t count,
                    T* to, std::int64_t stride) const {
    for (; lines > 0; --lines, ++line, to += stride)
      if (const T* const from = run(line, first, count, to); from != to) convert(from, to, count);
  }
  /// Makes at most max_runs runs of rows [row, row + 2 * half) and elements [p0, p0 + depth) along k. Returns their
  /// number, or 0 if the caller must copy.
  virtual int panel(std::int64_t /*row*/, int /*half*/, std::int64_t /*p0*/, std::int64_t /*depth*/,
                    Run<T>*, std::span<T> /*scratch*/) const {
    return 0;
  }

 protected:
  explicit Source(bool lines_along_k) : along_k(lines_along_k) {}
  Source(const Source&) = default;
  ~Source() = default;
};

template <class T, class S>
class MatrixSource final : public Source<T> {
 public:
  /// `stride`: number of elements from one line to the next.
  MatrixSource(const S* data, std::int64_t stride, bool lines_along_k)
      : Source<T>(lines_along_k), data_(data), stride_(stride) {}

  const T* run(std::int64_t line, std::int64_t first, std::int64_t count,
               T* scratch) const override {
    return widened(data_ + line * stride_ + first, count, scratch);
  }
  /// At most 1 KiB apart, the 256 lines across k that a panel reads lie in 64 pages, which the fastest TLB holds.
  [[nodiscard]] bool in_place() const override {
    return std::is_same_v<T, S> &&
           (this->along_k ? spreads<T>(stride_) : stride_ <= 1024 / std::int64_t{sizeof(T)});
  }
  int panel(std::int64_t row, int half, std::int64_t p0, std::int64_t depth, Run<T>* runs,
            std::span<T> /*scratch*/) const override {
    if constexpr (std::is_same_v<T, S>)
      if (in_place()) {
        const auto down = this->along_k ? stride_ : 1, step = this->along_k ? 1 : stride_;
        const T* const upper = data_ + row * down + p0 * step;
        *runs = {upper, upper + half * down, down, step, depth};
        return 1;
      }
    return 0;
  }
  [[nodiscard]] Lines lines(std::int64_t line, std::int64_t count, std::int64_t first,
                            std::int64_t length) const override {
    constexpr auto size = static_cast<std::int64_t>(sizeof(S));
    const auto* const from = reinterpret_cast<const std::byte*>(data_ + line * stride_ + first);
    return {from, count, length * size, stride_ * size};
  }

 private:
  const S* data_;
  std::int64_t stride_;
};

/// A matrix of lines across k. Line `line` begins at line_at(line).
template <class T, class S>
class LinesSource final : public Source<T> {
 public:
  explicit LinesSource(FunctionRef<const S*(std::int64_t line)> line_at)
      : Source<T>(false), line_at_(line_at) {}
  const T* run(std::int64_t line, std::int64_t first, std::int64_t count,
               T* scratch) const override {
    return widened(line_at_(line) + first, count, scratch);
  }
  /// Assumes that lines are as far apart as the first two. This holds for most, and only prefetches depend on it.
  [[nodiscard]] Lines lines(std::int64_t line, std::int64_t count, std::int64_t first,
                            std::int64_t length) const override {
    const auto next = count > 1 ? line_at_(line + 1) - line_at_(line) : 0;
    return MatrixSource<T, S>(line_at_(line), next, false).lines(0, count, first, length);
  }

 private:
  FunctionRef<const S*(std::int64_t)> line_at_;
};

}  // namespace dhp::detail::cpu
