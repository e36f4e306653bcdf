// The kernels of compressed gradients. Finding the largest elements and making columns orthonormal each run in a single
// block, because the data are small and sums need a fixed order.
#pragma once

#include <dhp/cuda/reduce.hpp>
#include <dhp/cuda/step.hpp>
#include <dhp/ops/compression.hpp>

#include <bit>
#include <type_traits>

namespace dhp::detail::cuda {

template <class T>
struct KeepIfApplied {
  const StepState* state;
  std::int64_t count;
  const T* fresh;
  T* memory;

  constexpr void operator()(auto& block) const {
    const T* const from = state->applies() ? fresh : memory;
    const auto factor = static_cast<T>(state->loss_scale / state->used_loss_scale);
    for (auto at = grid_thread(block); at < count; at += grid_threads(block))
      memory[at] = factor * from[at];
  }
};

/// Moves the `wanted` elements of largest magnitude to `values`, in one block. Finds their threshold bit by bit.
template <class T>
struct TakeLargest {
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  std::int64_t count, wanted;
  T* x;
  std::int32_t* indices;
  T* values;

  /// Returns a number that grows with the element's magnitude.
  [[nodiscard]] constexpr Bits size_of(std::int64_t at) const {
    return std::bit_cast<Bits>(x[at]) & (~Bits(0) >> 1);
  }
  constexpr void operator()(auto& block) const {
    double* const scratch = block.template shared<double>();
    Bits threshold = 0;
    for (Bits bit = Bits(1) << (8 * sizeof(Bits) - 2); bit != 0; bit >>= 1) {
      double reach = 0;
      for (std::int64_t at = block.thread(); at < count; at += block.threads())
        reach += size_of(at) >= (threshold | bit) ? 1 : 0;
      if (block_reduce(block, reach, scratch) >= static_cast<double>(wanted)) threshold |= bit;
    }
    auto* const above = reinterpret_cast<std::int32_t*>(scratch);
    auto* const equal = above + block.threads();
    const auto run = (count + block.threads() - 1) / block.threads();
    const auto first = block.thread() * run;
    const auto last = first + run < count ? first + run : count;
    std::int32_t mine_above = 0, mine_equal = 0;
    for (auto at = first; at < last; ++at) {
      mine_above += size_of(at) > threshold ? 1 : 0;
      mine_equal += size_of(at) == threshold ? 1 : 0;
    }
    above[block.thread()] = mine_above;
    equal[block.thread()] = mine_equal;
    block.sync();
    std::int64_t all_above = 0, before_above = 0, before_equal = 0;
    for (int other = 0; other < block.threads(); ++other) {
      all_above += above[other];
      before_above += other < block.thread() ? above[other] : 0;
      before_equal += other < block.thread() ? equal[other] : 0;
    }
    const auto room = wanted - all_above;  // elements equal to the threshold that still fit
    auto to = before_above + (before_equal < room ? before_equal : room);
    for (auto at = first; at < last; ++at) {
      const auto size = size_of(at);
      if (size < threshold || (size == threshold && before_equal++ >= room)) continue;
      indices[to] = static_cast<std::int32_t>(at);
      values[to++] = x[at];
      x[at] = 0;
    }
  }
};

template <class T, int width>
struct PackSigns {
  static_assert(8 % width == 0);
  std::int64_t count;
  const T* x;
  std::uint8_t* bits;

  constexpr void operator()(auto& block) const {
    for (auto byte = grid_thread(block); byte * 8 < count; byte += grid_threads(block)) {
      const T* const from = x + byte * 8;
      unsigned packed = 0;
      if (byte * 8 + 8 <= count) {
        for (int first = 0; first < 8; first += width) {
          const auto in = load<width>(from + first);
          int bit = first;
          for (const T value : in.at) packed |= (value >= 0 ? 1u : 0u) << bit++;
        }
      } else {
        for (int bit = 0; byte * 8 + bit < count; ++bit)
          packed |= (from[bit] >= 0 ? 1u : 0u) << bit;
      }
      bits[byte] = static_cast<std::uint8_t>(packed);
    }
  }
};
template <class T>
struct AddSigns {
  std::int64_t count;
  const std::uint8_t* bits;
  const double* magnitudes;
  double factor;
  T* y;

  constexpr void operator()(auto& block) const {
    const auto level = static_cast<T>(factor * *magnitudes / static_cast<double>(count));
    for (auto at = grid_thread(block); at < count; at += grid_threads(block))
      y[at] += (bits[at / 8] >> (at % 8) & 1) != 0 ? level : -level;
  }
};

/// Makes columns orthonormal in one block; each thread works on its own rows.
template <class T>
struct Orthonormalize {
  std::int64_t rows, columns;
  T* x;
  RandomStream random;

  constexpr void operator()(auto& block) const {
    double* const scratch = block.template shared<double>();
    gram_schmidt(
        x, columns, random,
        [&](auto term) {
          double total = 0;
          for (std::int64_t row = block.thread(); row < rows; row += block.threads())
            total += term(row);
          return block_reduce(block, total, scratch);
        },
        [&](auto body) {
          for (std::int64_t row = block.thread(); row < rows; row += block.threads()) body(row);
        });
  }
};

}  // namespace dhp::detail::cuda

namespace dhp::detail {

template <KernelDevice Dev>
void keep_if_applied_on(Dev& dev, ConstView<Dev> state, ConstView<Dev> fresh, View<Dev> memory) {
  visit_accumulator(memory.dtype(), [&]<class T>(TypeTag<T>) {
    launch(dev, cuda::grid_for(dev, memory.count()),
           cuda::KeepIfApplied<T>{cuda::step_state<Dev>(state), memory.count(), fresh.data(),
                                  memory.data()});
  });
}
template <KernelDevice Dev>
void take_largest_on(Dev& dev, View<Dev> x, View<Dev> indices, View<Dev> values) {
  visit_accumulator(x.dtype(), [&]<class T>(TypeTag<T>) {
    launch(
        dev, cuda::Grid{1, 256, 256 * sizeof(double)},
        cuda::TakeLargest<T>{x.count(), values.count(), x.data(), indices.data(), values.data()});
  });
}
template <KernelDevice Dev>
void pack_signs_on(Dev& dev, ConstView<Dev> x, View<Dev> bits) {
  visit_accumulator(x.dtype(), [&]<class T>(TypeTag<T>) {
    const T* const from = x.data();
    cuda::with_width<cuda::pack_size<T>, 1>(
        0,
        [&]<int width>(std::integral_constant<int, width>) {
          launch(dev, cuda::grid_for(dev, bits.count()),
                 cuda::PackSigns<T, width>{x.count(), from, bits.data()});
        },
        from);
  });
}
template <KernelDevice Dev>
void add_signs_on(Dev& dev, ConstView<Dev> bits, ConstView<Dev> magnitudes, double factor,
                  View<Dev> y) {
  visit_accumulator(y.dtype(), [&]<class T>(TypeTag<T>) {
    launch(dev, cuda::grid_for(dev, y.count()),
           cuda::AddSigns<T>{y.count(), bits.data(), magnitudes.data(), factor, y.data()});
  });
}
template <KernelDevice Dev>
void orthonormalize_on(Dev& dev, View<Dev> x, const RandomStream& random) {
  visit_accumulator(x.dtype(), [&]<class T>(TypeTag<T>) {
    launch(dev, cuda::Grid{1, 256, cuda::block_reduce_scratch * sizeof(double)},
           cuda::Orthonormalize<T>{x.rows(), x.columns(), x.data(), random});
  });
}

}  // namespace dhp::detail
