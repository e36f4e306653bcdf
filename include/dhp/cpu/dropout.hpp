// Implements dropout on the Cpu. One Philox block serves eight consecutive elements; eight blocks are drawn together.
#pragma once

#include <dhp/core/philox.hpp>
#include <dhp/cpu/column_reduce.hpp>
#include <dhp/ops/dropout.hpp>

#include <array>
#include <bit>
#include <cstdint>

namespace dhp::detail::cpu {

/// Calls decide(at, keep) for all at in [0, count), where keep tells whether dropout keeps element first + at. With
/// p = 0, every element is kept and no random number is drawn.
void for_kept(RandomStream random, double p, std::uint64_t first, std::int64_t count, auto decide) {
  if (p == 0) {
    for (std::int64_t at = 0; at < count; ++at) decide(at, true);
    return;
  }
  const auto threshold = dropout_threshold(p);
  constexpr auto together = static_cast<std::int64_t>(8 * PhiloxBlocks::count);
  auto at = -static_cast<std::int64_t>(first % 8);  // index of the block's element 0
  for (auto block = first / 8; at < count; block += PhiloxBlocks::count, at += together) {
    const PhiloxBlocks blocks(random, block);
    const std::int64_t from = at < 0 ? -at : 0;
    const std::int64_t to = at + together < count ? together : count - at;
    const auto numbers = std::bit_cast<std::array<std::uint16_t, together>>(blocks.words);
    for (auto number = from; number < to; ++number)
      decide(at + number, numbers[as_size(number)] >= threshold);
  }
}

/// Calls decide(column, keep) for the columns of a row. Random indices follow from the row's global number.
void for_kept(const RowNumbers<Cpu>& rows, const DropoutOptions& options, std::int64_t row,
              std::int64_t columns, auto decide) {
  const auto number = rows.index.empty() ? rows.first + row : rows.index.data<std::int64_t>()[row];
  const auto first = number * options.total_columns + options.first_column;
  for_kept(options.random, options.probability, static_cast<std::uint64_t>(first), columns, decide);
}

}  // namespace dhp::detail::cpu

namespace dhp::detail {

void dropout_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, const RowNumbers<Cpu>& rows,
                const DropoutOptions& options, View<Cpu> y) {
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const A scale = static_cast<A>(1.0 / (1.0 - options.probability));
    const auto columns = x.columns();
    const T* const all = x.data<T>();
    T* const dropped = y.data<T>();
    cpu::for_rows_with_buffer<A>(dev, x.rows(), columns, [&](std::int64_t row, A* values) {
      const A* const from = cpu::widened(all + row * columns, columns, values);
      cpu::for_kept(rows, options, row, columns, [=](std::int64_t at, bool keep) {
        const A value = from[at];
        values[at] = (keep ? value : A(0)) * scale;  // avoids a branch
      });
      cpu::convert(values, dropped + row * columns, columns);
    });
  });
}

}  // namespace dhp::detail
