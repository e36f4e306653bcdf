// Implements rotary positions on the Cpu. All heads of a row use the same angles.
#pragma once

#include <dhp/cpu/column_reduce.hpp>
#include <dhp/ops/rotary.hpp>

#include <vector>

namespace dhp::detail {

void rotary_on(std::same_as<Cpu> auto& dev, View<Cpu> x, ConstView<Cpu> positions,
               const RotaryOptions& options) {
  const auto half = x.columns() / options.heads / 2;
  const auto stride = options.row_stride == 0 ? x.columns() : options.row_stride;
  std::vector<double> turns(as_size(half));
  for (std::int64_t c = 0; c < half; ++c)
    turns[as_size(c)] = Rotation::turns(std::log(options.base), c, half);
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    cpu::for_rows_with_buffer<A>(dev, x.rows(), 2 * half, [&](std::int64_t row, A* cosines) {
      A* const sines = cosines + half;
      const auto position = static_cast<double>(positions.data<std::int32_t>()[row]);
      for (std::int64_t c = 0; c < half; ++c) {
        const auto at = Rotation::of_turns(position * turns[as_size(c)]);
        cosines[c] = static_cast<A>(at.cosine);
        sines[c] = static_cast<A>(options.inverse ? -at.sine : at.sine);
      }
      for (int head = 0; head < options.heads; ++head) {
        T* const one = x.data<T>() + row * stride + head * 2 * half;
        T* const other = one + half;
        const auto turn = [=](std::int64_t at, std::int64_t count, const A* a, const A* b) {
          A turned[2][cpu::row_block];
          for (std::int64_t c = 0; c < count; ++c) {
            turned[0][c] = a[c] * cosines[at + c] - b[c] * sines[at + c];
            turned[1][c] = b[c] * cosines[at + c] + a[c] * sines[at + c];
          }
          cpu::convert(turned[0], one + at, count);
          cpu::convert(turned[1], other + at, count);
        };
        cpu::in_row_blocks<A>(half, turn, one, other);
      }
    });
  });
}

}  // namespace dhp::detail
