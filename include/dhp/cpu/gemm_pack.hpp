// Packing: copies part of a matrix into the panels of gemm_kernel.hpp, transposed and converted as
// needed. The elements come from a Source, so convolutions pack straight from the image.
#pragma once

#include <dhp/cpu/convert.hpp>
#include <dhp/cpu/gemm_kernel.hpp>

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#ifdef __CUDACC__
#pragma nv_diagnostic push
#pragma nv_diag_suppress 1675  // nvcc passes "GCC unroll" on to the host compiler
#endif

namespace dhp::detail::cpu {

/// Yields runs of a matrix, by any object that has `deep` and `const T* run(line, first, count, scratch)`: `count`
/// elements of a line, in place or via scratch. Lines are contiguous in memory: along k ("deep"), or across it. One
/// type, so that products are compiled once and not for each pair of sources. Keeps a reference.
template <class T>
class Source {
 public:
  template <class S>
    requires(!std::is_same_v<S, Source>)
  Source(const S& of)
      : deep(of.deep),
        of_(reinterpret_cast<const std::byte*>(&of)),
        run_([](const std::byte* source, std::int64_t line, std::int64_t first, std::int64_t count,
                T* scratch) {
          return reinterpret_cast<const S*>(source)->run(line, first, count, scratch);
        }) {}
  const T* run(std::int64_t line, std::int64_t first, std::int64_t count, T* scratch) const {
    return run_(of_, line, first, count, scratch);
  }
  const bool deep;

 private:
  const std::byte* of_;
  const T* (*run_)(const std::byte*, std::int64_t, std::int64_t, std::int64_t, T*);
};

template <class T, class S>
struct MatrixSource {
  const S* data;
  std::int64_t stride;
  bool deep;

  const T* run(std::int64_t line, std::int64_t first, std::int64_t count, T* scratch) const {
    const S* from = data + line * stride + first;
    if constexpr (std::is_same_v<T, S>) {
      return from;
    } else {
      convert(from, scratch, count);
      return scratch;
    }
  }
};

/// A matrix of bf16 with k columns as one of pairs along k, the last with a 0 where k is odd. Runs along k are as in
/// memory, those across k as in panels. scratch: twice as many pairs as a run has.
struct PairSource {
  Source<bf16> of;
  std::int64_t k;
  const bool deep = of.deep;

  const Pair* run(std::int64_t line, std::int64_t first, std::int64_t count, Pair* scratch) const {
    bf16* const spare = reinterpret_cast<bf16*>(scratch);
    if (deep) {
      const auto length = std::min(2 * count, k - 2 * first);
      const bf16* const from = of.run(line, 2 * first, length, spare);
      if (length == 2 * count) return reinterpret_cast<const Pair*>(from);
      if (from != spare) std::copy(from, from + length, spare);
      spare[length] = bf16(0.0f);
      return scratch;
    }
    const bf16* const upper = of.run(2 * line, first, count, spare + 2 * count);
    const bf16* const lower =
        2 * line + 1 < k ? of.run(2 * line + 1, first, count, spare + 3 * count) : nullptr;
    for (std::int64_t i = 0; i < count; ++i)
      scratch[i] = {lower == nullptr ? bf16(0.0f) : lower[i], upper[i]};
    return scratch;
  }
};
/// A source of bf16 or of elements, as the source of elements that panels are packed from.
template <class E>
[[nodiscard]] auto elements(const Source<Loaded<E>>& of, std::int64_t k) {
  if constexpr (std::is_same_v<E, Pair>) return PairSource{of, k};
  else return of;
}

/// Uninitialized, cache-line aligned memory.
struct FreeAligned {
  void operator()(void* block) const { ::operator delete (block, std::align_val_t{64}); }
};
template <class T>
using Buffer = std::unique_ptr<T[], FreeAligned>;
template <class T>
Buffer<T> make_buffer(std::int64_t count) {
  const auto bytes = static_cast<std::size_t>(count) * sizeof(T);
  return Buffer<T>(static_cast<T*>(::operator new (bytes, std::align_val_t{64})));
}

// Interleaves a and b: a0 b0 a1 b1 ..; first is 0 for the lower halves, width/2 for the upper.
template <int first, class V, int... at>
V interleave(V a, V b, std::integer_sequence<int, at...>) {
  constexpr int width = sizeof...(at);
#ifdef __CUDACC__  // nvcc 13 does not expand this pack
  V out;
  for (int lane = 0; lane < width; ++lane) out[lane] = (lane % 2 == 0 ? a : b)[first + lane / 2];
  return out;
#else
  return __builtin_shufflevector(a, b, (first + at / 2 + at % 2 * width)...);
#endif
}

/// Elements of a native vector: the block size of packing, independent of the panels.
template <class T>
inline constexpr int pack_width = Panel<T, Native>::width;

/// Transposes a square block in log2(width) rounds of perfect shuffles.
template <class T>
void transpose(typename Vector<T>::type (&block)[pack_width<T>]) {
  using V = typename Vector<T>::type;
  constexpr int width = pack_width<T>;
  using Sequence = std::make_integer_sequence<int, width>;
#pragma GCC unroll 8
  for (int round = 1; round < width; round *= 2) {
    V next[width];
#pragma GCC unroll 16
    for (int i = 0; i < width / 2; ++i) {
      next[2 * i] = interleave<0>(block[i], block[i + width / 2], Sequence{});
      next[2 * i + 1] = interleave<width / 2>(block[i], block[i + width / 2], Sequence{});
    }
#pragma GCC unroll 16
    for (int i = 0; i < width; ++i) block[i] = next[i];
  }
}

/// Pairs of memory as pairs of panels.
template <class V>
void order([[maybe_unused]] V& block) {
  if constexpr (std::is_same_v<V, Pair>) std::swap(block.first, block.second);
  else if constexpr (std::is_same_v<V, Vector<Pair>::type>) block = block << 16 | block >> 16;
}

/// Transposes lines[0, count) of `depth` elements to out[p * stride + line], zeros up to width.
template <class T>
void pack_deep_lines(const T* const* lines, int count, std::int64_t depth, T* out,
                     std::int64_t stride) {
  constexpr int width = pack_width<T>;
  using V = typename Vector<T>::type;
  std::int64_t p = 0;
  if (count == width) {
    for (; p + width <= depth; p += width) {
      V block[width];
#pragma GCC unroll 16
      for (int i = 0; i < width; ++i) {
        std::memcpy(&block[i], lines[i] + p, sizeof(V));
        order(block[i]);
      }
      transpose<T>(block);
#pragma GCC unroll 16
      for (int i = 0; i < width; ++i)
        std::memcpy(reinterpret_cast<std::byte*>(out + (p + i) * stride), &block[i], sizeof(V));
    }
  }
  for (; p < depth; ++p) {
    for (int i = 0; i < count; ++i) order(out[p * stride + i] = lines[i][p]);
    for (int i = count; i < width; ++i) out[p * stride + i] = T{};
  }
}

/// Packs rows [row, row + rows), columns [p0, p0 + depth) of op(A): consecutive panels of depth *
/// row_stride elements. scratch: max(width * depth, 2 rows).
template <class R, class T>
void pack_a(const auto& source, std::int64_t row, std::int64_t rows, std::int64_t p0,
            std::int64_t depth, T* out, T* scratch) {
  using P = Panel<T, R>;
  constexpr int width = pack_width<T>;
  if (depth == 0) return;
  if (!source.deep) {
    for (std::int64_t p = 0; p < depth; ++p) {
      const T* from = source.run(p0 + p, row, rows, scratch);
      T* to = out + p * P::row_stride;
      std::int64_t i = 0;
      for (; i + P::rows <= rows; i += P::rows, to += depth * P::row_stride)
        std::memcpy(to, from + i, P::rows * sizeof(T));
      if (i < rows) {
        for (int at = 0; at < P::rows; ++at) to[at] = i + at < rows ? from[i + at] : T{};
      }
    }
    return;
  }
  for (std::int64_t i = 0; i < rows; i += P::rows, out += depth * P::row_stride) {
    const int high = static_cast<int>(std::min<std::int64_t>(P::rows, rows - i));
    for (int first = 0; first < P::rows; first += width) {
      const T* lines[width] = {};
      const int count = std::clamp(high - first, 0, width);
      for (int line = 0; line < count; ++line)
        lines[line] = source.run(row + i + first + line, p0, depth, scratch + line * depth);
      // A full panel repeats its first line up to the vector width; the kernel reads no copy.
      const int used = high == P::rows ? width : count;
      for (int line = count; line < used; ++line) lines[line] = lines[0];
      pack_deep_lines(lines, used, depth, out + first, P::row_stride);
    }
  }
}

/// Packs rows [p0, p0 + depth), columns [column, column + columns) of op(B): consecutive panels of
/// depth * P::columns elements. scratch: max(width * depth, 2 columns).
template <class R, class T>
void pack_b(const auto& source, std::int64_t column, std::int64_t columns, std::int64_t p0,
            std::int64_t depth, T* out, T* scratch) {
  using P = Panel<T, R>;
  constexpr int width = pack_width<T>;
  if (depth == 0) return;
  if (source.deep) {
    for (std::int64_t j = 0; j < columns; j += P::columns, out += depth * P::columns) {
      for (int first = 0; first < P::columns; first += width) {
        const T* lines[width];
        const int count = static_cast<int>(std::clamp<std::int64_t>(columns - j - first, 0, width));
        for (int i = 0; i < count; ++i)
          lines[i] = source.run(column + j + first + i, p0, depth, scratch + i * depth);
        pack_deep_lines(lines, count, depth, out + first, P::columns);
      }
    }
    return;
  }
  for (std::int64_t p = 0; p < depth; ++p) {
    const T* from = source.run(p0 + p, column, columns, scratch);
    T* to = out + p * P::columns;
    std::int64_t j = 0;
    for (; j + P::columns <= columns; j += P::columns, to += depth * P::columns)
      std::memcpy(to, from + j, P::columns * sizeof(T));
    if (j < columns) {
      for (int i = 0; i < P::columns; ++i) to[i] = j + i < columns ? from[j + i] : T{};
    }
  }
}

}  // namespace dhp::detail::cpu

#ifdef __CUDACC__
#pragma nv_diagnostic pop
#endif
