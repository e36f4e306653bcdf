#pragma once

#include <dhp/cpu/reduce.hpp>
#include <dhp/cpu/step.hpp>
#include <dhp/ops/compression.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <type_traits>
#include <vector>

namespace dhp::detail {

void keep_if_applied_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> state, ConstView<Cpu> fresh,
                        View<Cpu> memory) {
  const auto& now = cpu::step_state(state);
  const auto from = now.applies() ? fresh : ConstView<Cpu>(memory);
  visit_accumulator(memory.dtype(), [&]<class T>(TypeTag<T>) {
    const auto factor = static_cast<T>(now.loss_scale / now.used_loss_scale);
    cpu::map<T>(
        dev, memory, [factor](T value) { return factor * value; }, from);
  });
}
void take_largest_on(std::same_as<Cpu> auto&, View<Cpu> x, View<Cpu> indices, View<Cpu> values) {
  visit_accumulator(x.dtype(), [&]<class T>(TypeTag<T>) {
    using Bits = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;
    T* const all = x.data<T>();
    auto* const index = indices.data<std::int32_t>();
    T* const taken = values.data<T>();
    // Without the sign bit, the bits order floating-point numbers by magnitude.
    const auto size_of = [all](std::int64_t at) {
      return static_cast<Bits>(std::bit_cast<Bits>(all[at]) & std::numeric_limits<Bits>::max());
    };
    std::vector<Bits> sizes(as_size(x.count()));
    for (std::int64_t at = 0; at < x.count(); ++at) sizes[as_size(at)] = size_of(at);
    const auto least = sizes.begin() + (values.count() - 1);
    std::nth_element(sizes.begin(), least, sizes.end(), [](Bits a, Bits b) { return a > b; });
    const auto threshold = *least;
    auto equal = values.count() - std::count_if(sizes.begin(), least + 1,
                                                [&](Bits size) { return size > threshold; });
    for (std::int64_t at = 0, to = 0; to < values.count(); ++at) {
      const auto size = size_of(at);
      if (size < threshold || (size == threshold && equal-- <= 0)) continue;
      index[to] = static_cast<std::int32_t>(at);
      taken[to++] = all[at];
      all[at] = 0;
    }
  });
}
void pack_signs_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> x, View<Cpu> bits) {
  visit_accumulator(x.dtype(), [&]<class T>(TypeTag<T>) {
    const T* const from = x.data<T>();
    auto* const to = bits.data<std::uint8_t>();
    cpu::for_rows(dev, bits.count(), 1 << 12, [=, count = x.count()](std::int64_t byte) {
      unsigned packed = 0;
      const auto end = std::min<std::int64_t>(8, count - 8 * byte);
      for (std::int64_t bit = 0; bit < end; ++bit)
        packed |= unsigned{from[8 * byte + bit] >= 0} << bit;
      to[byte] = static_cast<std::uint8_t>(packed);
    });
  });
}
void add_signs_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> bits, ConstView<Cpu> magnitudes,
                  double factor, View<Cpu> y) {
  visit_accumulator(y.dtype(), [&]<class T>(TypeTag<T>) {
    const auto level =
        static_cast<T>(factor * *magnitudes.data<double>() / static_cast<double>(y.count()));
    const std::array<T, 2> levels{-level, level};  // a table: branches on signs would mispredict
    const auto* const from = bits.data<std::uint8_t>();
    T* const to = y.data<T>();
    cpu::for_rows(dev, y.count(), cpu::elementwise_tile,
                  [=](std::int64_t at) { to[at] += levels[from[at / 8] >> at % 8 & 1]; });
  });
}
void orthonormalize_on(std::same_as<Cpu> auto&, View<Cpu> x, const RandomStream& random) {
  visit_accumulator(x.dtype(), [&]<class T>(TypeTag<T>) {
    const auto rows = x.rows();
    gram_schmidt(
        x.data<T>(), x.columns(), random,
        [rows](auto term) { return cpu::lane_sum<double>(rows, term); },
        [rows](auto body) {
          for (std::int64_t row = 0; row < rows; ++row) body(row);
        });
  });
}

}  // namespace dhp::detail
