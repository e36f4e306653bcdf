// Dropout on the Cpu. One Philox block decides four neighbouring elements, and eight blocks are one
// step.
#pragma once

#include <dhp/device/cpu.hpp>
#include <dhp/ops/dropout.hpp>

#include <cmath>
#include <cstdint>

namespace dhp::cpu {

/// Words of `count` neighbouring Philox blocks of a stream, 4 each, in their order. Many at once,
/// lane by lane, because one alone is a chain of twenty multiplications that no vector unit helps
/// with.
struct PhiloxBlocks {
  static constexpr std::size_t count = 8;
  std::uint32_t words[4 * count];

  PhiloxBlocks(const RandomStream& random, std::uint64_t first) {
    std::uint32_t a[count], b[count], c[count], d[count];  // the four words of each counter
    for (std::size_t lane = 0; lane < count; ++lane) {
      a[lane] = static_cast<std::uint32_t>(first + lane);
      b[lane] = static_cast<std::uint32_t>((first + lane) >> 32);
      c[lane] = random.use;
      d[lane] = random.step;
    }
    auto key0 = static_cast<std::uint32_t>(random.seed);
    auto key1 = static_cast<std::uint32_t>(random.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      for (std::size_t lane = 0; lane < count; ++lane) {
        const std::uint64_t left = std::uint64_t{0xD2511F53u} * a[lane];
        const std::uint64_t right = std::uint64_t{0xCD9E8D57u} * c[lane];
        a[lane] = static_cast<std::uint32_t>(right >> 32) ^ b[lane] ^ key0;
        b[lane] = static_cast<std::uint32_t>(right);
        c[lane] = static_cast<std::uint32_t>(left >> 32) ^ d[lane] ^ key1;
        d[lane] = static_cast<std::uint32_t>(left);
      }
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
    for (std::size_t lane = 0; lane < count; ++lane) {
      words[4 * lane] = a[lane];
      words[4 * lane + 1] = b[lane];
      words[4 * lane + 2] = c[lane];
      words[4 * lane + 3] = d[lane];
    }
  }
};

/// decide(at, keep) for the `count` elements numbered from `first`, at counting from 0; keep with
/// probability 1 - p, the same decision as RandomStream::uniform(first + at) >= p.
template <class Decide>
void for_kept(RandomStream random, double p, std::uint64_t first, std::int64_t count,
              Decide decide) {
  const auto threshold = static_cast<std::uint32_t>(std::ceil(p * 0x1p24));  // uniform has 24 bits
  constexpr auto together = static_cast<std::int64_t>(4 * PhiloxBlocks::count);
  auto at = -static_cast<std::int64_t>(first % 4);  // the element that the first word belongs to
  for (auto block = first / 4; at < count; block += PhiloxBlocks::count, at += together) {
    const PhiloxBlocks blocks(random, block);
    const std::int64_t from = at < 0 ? -at : 0;
    const std::int64_t to = at + together < count ? together : count - at;
    for (auto word = from; word < to; ++word)
      decide(at + word, (blocks.words[word] >> 8) >= threshold);
  }
}

template <class T>
struct DropoutKernel {
  static void apply(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* x,
                    const RowNumbers<Cpu>& numbers, const DropoutOptions& options, T* y);
};

template <class T>
void DropoutKernel<T>::apply(Cpu& dev, std::int64_t rows, std::int64_t columns, const T* x,
                             const RowNumbers<Cpu>& numbers, const DropoutOptions& options, T* y) {
  using A = Accumulator<T>;
  const auto* number_of = numbers.index.empty() ? nullptr : numbers.index.data<std::int64_t>();
  const A scale = static_cast<A>(1.0 / (1.0 - options.probability));
  dev.for_ranges(rows, 16, [&](std::int64_t first, std::int64_t last) {
    for (auto row = first; row < last; ++row) {
      const auto number = number_of == nullptr ? numbers.first + row : number_of[row];
      const T* from = x + row * columns;
      T* to = y + row * columns;
      for_kept(options.random, options.probability,
               static_cast<std::uint64_t>(number * options.total_columns + options.first_column),
               columns, [&](std::int64_t at, bool keep) {
                 to[at] = keep ? static_cast<T>(static_cast<A>(from[at]) * scale) : T(0.0f);
               });
    }
  });
}

}  // namespace dhp::cpu

namespace dhp {

inline void dropout_on(Cpu& dev, ConstView<Cpu> x, const RowNumbers<Cpu>& rows,
                       const DropoutOptions& options, View<Cpu> y) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    cpu::DropoutKernel<T>::apply(dev, x.rows(), x.columns(), x.data<T>(), rows, options,
                                 y.data<T>());
  });
}

}  // namespace dhp
