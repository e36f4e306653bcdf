// Sums matrix columns by fixed tiles of rows. Tiles are added in order, so the number of threads changes no bit.
#pragma once

#include <dhp/cpu/convert.hpp>
#include <dhp/device/cpu.hpp>

#include <cstdint>
#include <vector>

namespace dhp::detail::cpu {

/// Calls body(row) for all rows. Each thread takes `tile` rows at a time.
void for_rows(Cpu& dev, std::int64_t rows, std::int64_t tile, auto body) {
  dev.for_ranges(rows, tile, [=](std::int64_t first, std::int64_t last) {
    for (auto row = first; row < last; ++row) body(row);
  });
}

/// Calls body(row, buffer) for all rows. Each thread takes 16 rows at a time. buffer: `size` elements for the row.
template <class A>
void for_rows_with_buffer(Cpu& dev, std::int64_t rows, std::int64_t size, auto body) {
  dev.for_ranges(rows, 16, [=](std::int64_t first, std::int64_t last) {
    std::vector<A> buffer(as_size(size));
    for (auto row = first; row < last; ++row) body(row, buffer.data());
  });
}

/// Computes `sums` sums of each column. add_rows(first, last, totals) adds at most `tile` rows to
/// totals[sum * columns + column]. finish(sum, column, value) receives each result as a double.
template <class A, class AddRows, class Finish>
void reduce_columns(Cpu& dev, std::int64_t rows, std::int64_t columns, std::int64_t sums,
                    std::int64_t tile, AddRows add_rows, Finish finish) {
  const std::int64_t tiles = (rows + tile - 1) / tile;
  const std::int64_t width = sums * columns;
  std::vector<A> totals(as_size(tiles * width), A(0));
  dev.for_ranges(rows, tile, [&](std::int64_t first, std::int64_t last) {
    add_rows(first, last, totals.data() + first / tile * width);
  });
  std::vector<double> result(as_size(width), 0.0);
  for (std::int64_t part = 0; part < tiles; ++part)
    for (std::int64_t at = 0; at < width; ++at)
      result[as_size(at)] += static_cast<double>(totals[as_size(part * width + at)]);
  for (std::int64_t which = 0; which < sums; ++which)
    for (std::int64_t column = 0; column < columns; ++column)
      finish(which, column, result[as_size(which * columns + column)]);
}

/// Like reduce_columns, for dense matrices `from` with rows of `stride` elements. add(row, first, count, totals,
/// values...) adds a block of columns to totals[sum * columns + column]. values: the block of each matrix, as A.
template <class A>
void sum_rows(Cpu& dev, std::int64_t rows, std::int64_t columns, std::int64_t stride,
              std::int64_t sums, const auto& add, const auto& finish, const auto*... from) {
  reduce_columns<A>(
      dev, rows, columns, sums, 128,
      [&](std::int64_t row, std::int64_t last, A* totals) {
        const auto one = [&](std::int64_t first, std::int64_t count, const auto*... values) {
          add(row, first, count, totals, values...);
        };
        for (; row < last; ++row) in_row_blocks<A>(columns, one, from + row * stride...);
      },
      finish);
}

/// A sum in 16 lanes. Its order of additions is fixed, and compilers can vectorize it.
template <class A>
class LaneSum {
 public:
  static constexpr std::int64_t lanes = 16;

  /// Adds term(at) for all at in [0, count). It can be called again only if count was a multiple of `lanes`.
  void add(std::int64_t count, auto term) {
    std::int64_t at = 0;
    for (; at + lanes <= count; at += lanes)
      for (std::int64_t lane = 0; lane < lanes; ++lane) total_[lane] += term(at + lane);
    for (; at < count; ++at) total_[at % lanes] += term(at);
  }
  [[nodiscard]] A total() {
    for (std::int64_t half = lanes / 2; half > 0; half /= 2)
      for (std::int64_t lane = 0; lane < half; ++lane) total_[lane] += total_[lane + half];
    return total_[0];
  }

 private:
  A total_[lanes] = {};
};

/// Returns the sum of term(at) over all at in [0, count).
template <class A, class Term>
[[nodiscard]] A lane_sum(std::int64_t count, Term term) {
  LaneSum<A> sum;
  sum.add(count, term);
  return sum.total();
}

/// Returns the maximum of term(at) over all at in [0, count), for count >= 1, in vector lanes. The result is
/// unspecified if a term is NaN: callers compute e^(term - maximum), which is NaN with any maximum.
template <class A, class Term>
[[nodiscard]] A largest(std::int64_t count, Term term) {
  constexpr std::int64_t lanes = 32;  // with 16, GCC 12 unrolls the loop instead of vectorizing it
  A most[lanes];
  for (auto& value : most) value = term(0);
  const auto take = [&](std::int64_t lane, A value) {
    const A old = most[lane];
    most[lane] = value > old ? value : old;
  };
  std::int64_t at = 0;
  for (; at + lanes <= count; at += lanes)
    for (std::int64_t lane = 0; lane < lanes; ++lane) take(lane, term(at + lane));
  for (; at < count; ++at) take(0, term(at));
  for (std::int64_t half = lanes / 2; half > 0; half /= 2)
    for (std::int64_t lane = 0; lane < half; ++lane) take(lane, most[lane + half]);
  return most[0];
}

}  // namespace dhp::detail::cpu
