// Packs parts of matrices into the panels of gemm_kernel.hpp, transposed and converted as needed. The elements come
// from a Source, so that convolutions pack straight from the image.
#pragma once

#include <dhp/cpu/gemm_source.hpp>

#include <algorithm>
#include <bit>
#include <memory>
#include <new>
#include <span>

namespace dhp::detail::cpu {

/// The number of lines that are transposed together: the elements of 16 bytes, within which shuffles cost least.
template <class T>
inline constexpr int pack_width = 16 / sizeof(T);
/// A vector of pack_width elements.
template <class T>
using Lane = typename Vector<T, Registers<16, 1>>::type;
/// Swaps the halves of pairs, from memory order to panel order. Leaves other elements unchanged.
template <class V>
void order([[maybe_unused]] V& block) {
  if constexpr (std::is_same_v<V, Pair>)
    block = std::bit_cast<Pair>(std::rotl(std::bit_cast<std::uint32_t>(block), 16));
  else if constexpr (std::is_same_v<V, Lane<Pair>>) block = block << 16 | block >> 16;
}

/// Presents a bf16 matrix as pairs along k, padded with 0 if k is odd. run() returns pairs in memory order if the
/// lines lie along k, else in panel order. scratch holds one run of pairs, or two if lines lie across k.
class PairSource final : public Source<Pair> {
 public:
  PairSource(const Source<bf16>& of, std::int64_t k) : Source<Pair>(of.along_k), of_(of), k_(k) {}

  [[nodiscard]] std::int64_t piece() const override { return of_.piece(); }
  [[nodiscard]] Lines lines(std::int64_t line, std::int64_t count, std::int64_t first,
                            std::int64_t length) const override {
    if (along_k) return of_.lines(line, count, 2 * first, std::min(2 * length, k_ - 2 * first));
    return of_.lines(2 * line, std::min(2 * count, k_ - 2 * line), first, length);
  }
  void copy(std::int64_t line, std::int64_t lines, std::int64_t first, std::int64_t count, Pair* to,
            std::int64_t stride) const override {
    if (!along_k) {
      for (; lines > 0; --lines, ++line, to += stride) copy_flat(2 * line, first, count, to);
      return;
    }
    const auto length = std::min(2 * count, k_ - 2 * first);
    of_.copy(line, lines, 2 * first, length, reinterpret_cast<bf16*>(to), 2 * stride);
    for (; lines > 0; --lines, to += stride) {
      if (length < 2 * count) to[count - 1].second = bf16(0.0f);
      // A line of a panel has room for whole lanes.
      for (std::int64_t p = 0; p < count; p += pack_width<Pair>) {
        Lane<Pair> block;
        std::memcpy(&block, to + p, sizeof block);
        order(block);
        std::memcpy(reinterpret_cast<std::byte*>(to + p), &block, sizeof block);
      }
    }
  }
  const Pair* run(std::int64_t line, std::int64_t first, std::int64_t count,
                  Pair* scratch) const override {
    bf16* const spare = reinterpret_cast<bf16*>(scratch);
    if (along_k) {
      const auto length = std::min(2 * count, k_ - 2 * first);
      const bf16* const from = of_.run(line, 2 * first, length, spare);
      if (length == 2 * count) return reinterpret_cast<const Pair*>(from);
      if (from != spare) std::copy(from, from + length, spare);
      spare[length] = bf16(0.0f);
      return scratch;
    }
    copy_flat(2 * line, first, count, scratch);
    return scratch;
  }

 private:
  /// Copies pairs made of a line and the next line.
  void copy_flat(std::int64_t line, std::int64_t first, std::int64_t count, Pair* to) const {
    constexpr std::int64_t most = 256;
    static constexpr bf16 none[most] = {};
    alignas(64) std::byte spare[2][most * sizeof(bf16)];  // uninitialized, unlike an array of bf16
    for (std::int64_t length; count > 0; first += length, count -= length, to += length) {
      length = std::min(count, most);
      const auto run = [&](std::int64_t of, std::byte* copy) {
        return of < k_ ? of_.run(of, first, length, reinterpret_cast<bf16*>(copy)) : none;
      };
      const bf16 *const upper = run(line, spare[0]), *const lower = run(line + 1, spare[1]);
      for (std::int64_t i = 0; i < length; ++i) to[i] = {lower[i], upper[i]};
    }
  }

  const Source<bf16>& of_;
  std::int64_t k_;
};
/// Returns the source that panels of E are packed from: `of`, or its pairs along k if E is Pair.
template <class E>
[[nodiscard]] decltype(auto) elements(const Source<Loaded<E>>& of,
                                      [[maybe_unused]] std::int64_t k) {
  if constexpr (std::is_same_v<E, Pair>) return PairSource(of, k);
  else return (of);
}

/// Frees the memory of a Buffer, which is aligned to cache lines and uninitialized.
struct FreeAligned {
  void operator()(void* block) const { ::operator delete (block, std::align_val_t{64}); }
};
template <class T>
using Buffer = std::unique_ptr<T[], FreeAligned>;
template <class T>
Buffer<T> make_buffer(std::int64_t count) {
  const auto bytes = as_size(count) * sizeof(T);
  return Buffer<T>(static_cast<T*>(::operator new (bytes, std::align_val_t{64})));
}

// g++ 11 lacks this builtin. It and nvcc pack element by element.
#if __has_builtin(__builtin_shufflevector) && !defined(__CUDACC__)
/// Interleaves the lower or the upper halves of two lanes.
template <bool upper, class V>
V interleave(V a, V b) {
  constexpr int first = upper ? sizeof(V) / sizeof(a[0]) / 2 : 0;
  if constexpr (sizeof(a[0]) == 8) return __builtin_shufflevector(a, b, first, first + 2);
  else return __builtin_shufflevector(a, b, first, first + 4, first + 1, first + 5);
}
/// Transposes a square of lanes with perfect shuffles.
template <class V, std::size_t size>
void transpose(V (&block)[size]) {
#pragma GCC unroll 4
  for (std::size_t round = 1; round < size; round *= 2) {
    V next[size];
#pragma GCC unroll 4
    for (std::size_t i = 0; i < size / 2; ++i) {
      next[2 * i] = interleave<false>(block[i], block[i + size / 2]);
      next[2 * i + 1] = interleave<true>(block[i], block[i + size / 2]);
    }
#pragma GCC unroll 4
    for (std::size_t i = 0; i < size; ++i) block[i] = next[i];
  }
}
#endif

/// Transposes elements [p, end) of lines[0, count) to out[p * stride + line]. Lines from count to pack_width are 0.
template <class T>
void pack_lines_along_k(const T* const* lines, int count, std::int64_t p, std::int64_t end, T* out,
                        std::int64_t stride) {
  constexpr int width = pack_width<T>;
#if __has_builtin(__builtin_shufflevector) && !defined(__CUDACC__)
  for (; count == width && p + width <= end; p += width) {
    Lane<T> block[as_size(width)];
#pragma GCC unroll 4
    for (int i = 0; i < width; ++i) {
      std::memcpy(&block[i], lines[i] + p, sizeof block[i]);
      order(block[i]);
    }
    transpose(block);
#pragma GCC unroll 4
    for (int i = 0; i < width; ++i)
      std::memcpy(reinterpret_cast<std::byte*>(out + (p + i) * stride), &block[i], sizeof block[i]);
  }
#endif
  for (; p < end; ++p) {
    for (int i = 0; i < count; ++i) order(out[p * stride + i] = lines[i][p]);
    for (int i = count; i < width; ++i) out[p * stride + i] = T{};
  }
}

/// Number of lines across k that are packed together. A single line visits all panels, which often share cache sets.
inline constexpr int flat_lines = 8;
/// Packs elements [first, first + count) of lines [line, line + depth) across k of a source. Each panel has
/// depth * wide elements. scratch has (flat_lines + 1) * count elements.
template <int wide, class T>
void pack_flat(const auto& source, std::int64_t line, std::int64_t depth, std::int64_t first,
               std::int64_t count, T* out, T* scratch) {
  for (std::int64_t p = 0; p < depth; p += flat_lines, out += flat_lines * wide) {
    const T* lines[flat_lines];
    const int high = static_cast<int>(std::min<std::int64_t>(flat_lines, depth - p));
    for (int i = 0; i < high; ++i)
      lines[i] = source.run(line + p + i, first, count, scratch + i * count);
    T* panel = out;
    for (std::int64_t j = 0; j < count; j += wide, panel += depth * wide) {
      for (int i = 0; i < high; ++i) {
        const T* const from = lines[i] + j;
        T* const to = panel + i * wide;
        if (j + wide <= count) std::memcpy(to, from, wide * sizeof(T));
        else
          for (int at = 0; at < wide; ++at) to[at] = j + at < count ? from[at] : T{};
      }
    }
  }
}
/// Returns the distance of packed lines of `count` elements: an odd number of cache lines, to spread over cache sets.
template <class T>
[[nodiscard]] std::int64_t packed_stride(std::int64_t count) {
  constexpr std::int64_t line = 64 / sizeof(T);
  return ((count + line - 1) / line | 1) * line;
}

/// Returns runs of rows [row, row + rows) and columns [p0, p0 + depth) of a source, at most P::rows rows. scratch has
/// room for P::rows lines of a panel along k, or for `depth` packed lines across k.
template <class R, class T>
Runs<T> runs_of_panel(const auto& source, std::int64_t row, std::int64_t rows, std::int64_t p0,
                      std::int64_t depth, Run<T>* runs, T* scratch) {
  using P = Panel<T, R>;
  if (depth == 0) return {runs, 0};
  if constexpr (!P::pairs)
    if (rows == P::rows)
      if (const int count = source.panel(row, P::rows / 2, p0, depth, runs,
                                         std::span(scratch, P::rows * P::line)))
        return {runs, count};
  if (source.along_k) {
    source.copy(row, rows, p0, depth, scratch, P::line);
    for (auto at = rows; at < P::rows; ++at) std::fill_n(scratch + at * P::line, depth, T{});
    *runs = {scratch, scratch + P::rows / 2 * P::line, P::line, 1, depth};
  } else {
    const auto stride = packed_stride<T>(P::rows);
    source.copy(p0, depth, row, rows, scratch, stride);
    *runs = {scratch, scratch + P::rows / 2, 1, stride, depth};
  }
  return {runs, 1};
}

/// Packs rows [p0, p0 + depth), columns [column, column + columns) of op(B) into consecutive panels of
/// depth * P::columns elements.
template <class R, class T>
void pack_b(const auto& source, std::int64_t column, std::int64_t columns, std::int64_t p0,
            std::int64_t depth, T* out) {
  using P = Panel<T, R>;
  constexpr int width = pack_width<T>;
  // Panels are packed in steps of this depth, so that a step stays in L1 until all lines of the panel have filled it.
  constexpr std::int64_t together = 64;
  if (depth == 0) return;
  const auto buffer = make_buffer<T>(std::max(P::columns * depth, (flat_lines + 1) * columns));
  T* const scratch = buffer.get();
  if (!source.along_k) {  // piece by contiguous piece
    const auto piece = source.piece() % P::columns == 0 ? source.piece() : column + columns;
    for (std::int64_t j = 0, wide; j < columns; j += wide, out += wide * depth) {
      wide = std::min(columns - j, piece - (column + j) % piece);
      pack_flat<P::columns>(source, p0, depth, column + j, wide, out, scratch);
    }
    return;
  }
  for (std::int64_t j = 0; j < columns; j += P::columns, out += depth * P::columns) {
    const T* lines[P::columns];
    const int wide = static_cast<int>(std::min<std::int64_t>(P::columns, columns - j));
    for (int i = 0; i < wide; ++i)
      lines[i] = source.run(column + j + i, p0, depth, scratch + i * depth);
    for (std::int64_t p = 0; p < depth; p += together)
      for (int first = 0; first < P::columns; first += width)
        pack_lines_along_k(lines + first, std::clamp(wide - first, 0, width), p,
                           std::min(p + together, depth), out + first, P::columns);
  }
}

}  // namespace dhp::detail::cpu
