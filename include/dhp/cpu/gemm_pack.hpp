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

/// The bytes of a vector for transposes. Shuffles within its lanes of 16 bytes cost least.
inline constexpr int pack_bytes = std::min(vector_bytes, 32);
/// The number of lines that are transposed together.
template <class T>
inline constexpr int pack_width = pack_bytes / sizeof(T);
/// A vector of pack_width elements.
template <class T>
using Lanes = typename Vector<T, Registers<pack_bytes, 1>>::type;
/// Swaps the halves of pairs, from memory order to panel order. Leaves other elements unchanged.
template <class T, class V>
void order([[maybe_unused]] V& block) {
  if constexpr (std::is_same_v<V, Pair>)
    block = std::bit_cast<Pair>(std::rotl(std::bit_cast<std::uint32_t>(block), 16));
  else if constexpr (std::is_same_v<T, Pair>) block = block << 16 | block >> 16;
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
/// Returns the vector of the elements index(0), index(1), ... of a followed by b.
template <class V, class Index>
V shuffled(auto a, auto b, Index) {
  const auto of = [&]<int... i>(std::integer_sequence<int, i...>) {
    return __builtin_shufflevector(a, b, Index{}(i)...);
  };
  return of(std::make_integer_sequence<int, sizeof(V) / sizeof(a[0])>());
}
/// Interleaves the lower or the upper halves of each lane of two vectors.
template <bool upper, class V>
V interleave(V a, V b) {
  constexpr int n = sizeof(V) / sizeof(a[0]), lane = 16 / sizeof(a[0]), at = upper ? lane / 2 : 0;
  return shuffled<V>(a, b, [](int i) { return i % 2 * n + i / lane * lane + i % lane / 2 + at; });
}
/// Transposes the squares that the lanes of some vectors form, with perfect shuffles.
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

inline constexpr bf16 no_pairs[256] = {};
/// Presents a bf16 matrix with k elements along k as pairs along k, followed by zeros. run() returns pairs in memory
/// order if the lines lie along k, else in panel order. scratch holds one run of pairs, or two if lines lie across k.
template <class E>
class PairSource final : public Source<E> {
 public:
  PairSource(const Source<bf16>& of, std::int64_t k) : Source<E>(of.along_k), of_(of), k_(k) {}

  [[nodiscard]] std::int64_t piece() const override { return of_.piece(); }
  [[nodiscard]] Lines lines(std::int64_t line, std::int64_t count, std::int64_t first,
                            std::int64_t length) const override {
    if (this->along_k)
      return of_.lines(line, count, 2 * first, std::min(2 * length, k_ - 2 * first));
    return of_.lines(2 * line, std::min(2 * count, k_ - 2 * line), first, length);
  }
  void copy(std::int64_t line, std::int64_t lines, std::int64_t first, std::int64_t count, E* to,
            std::int64_t stride) const override {
    if (!this->along_k) {
      for (; lines > 0; --lines, ++line, to += stride) copy_flat(2 * line, first, count, to);
      return;
    }
    const auto length = std::min(2 * count, k_ - 2 * first);
    of_.copy(line, lines, 2 * first, length, reinterpret_cast<bf16*>(to), 2 * stride);
    for (; lines > 0; --lines, to += stride) {
      std::fill_n(reinterpret_cast<bf16*>(to) + length, 2 * count - length, bf16(0.0f));
      // A line of a panel has room for whole lanes.
      for (std::int64_t p = 0; std::is_same_v<E, Pair> && p < count; p += pack_width<E>) {
        Lanes<E> block;
        std::memcpy(&block, to + p, sizeof block);
        order<E>(block);
        std::memcpy(reinterpret_cast<std::byte*>(to + p), &block, sizeof block);
      }
    }
  }
  const E* run(std::int64_t line, std::int64_t first, std::int64_t count,
               E* scratch) const override {
    if (!this->along_k) {
      copy_flat(2 * line, first, count, scratch);
      return scratch;
    }
    bf16* const spare = reinterpret_cast<bf16*>(scratch);
    const auto length = std::min(2 * count, k_ - 2 * first);
    const bf16* const from = of_.run(line, 2 * first, length, spare);
    if (length == 2 * count) return reinterpret_cast<const E*>(from);
    if (from != spare) std::copy(from, from + length, spare);
    std::fill_n(spare + length, 2 * count - length, bf16(0.0f));
    return scratch;
  }
  /// Pairs for tiles can be read in place.
  int panel(std::int64_t row, int half, std::int64_t p0, std::int64_t depth, Run<E>* runs,
            std::span<E> scratch) const override {
    if (!std::is_same_v<E, TilePair> || !this->along_k || 2 * (p0 + depth) > k_) return 0;
    Run<bf16> found[max_runs];
    const int count = of_.panel(row, half, 2 * p0, 2 * depth, found,
                                {reinterpret_cast<bf16*>(scratch.data()), 2 * scratch.size()});
    for (int i = 0; i < count; ++i) {
      const auto& [upper, lower, stride, step, length] = found[i];
      if (length % (2 * Panel<E, Native>::unit) != 0 || stride % 2 != 0 || stride % 1024 == 0)
        return 0;
      runs[i] = {reinterpret_cast<const E*>(upper), reinterpret_cast<const E*>(lower), stride / 2,
                 1, length / 2};
    }
    return count;
  }

 private:
  /// Copies pairs made of a line and the next line.
  void copy_flat(std::int64_t line, std::int64_t at, std::int64_t count, E* to) const {
    constexpr auto most = std::ssize(no_pairs);
    alignas(64) std::byte spare[2][most * sizeof(bf16)];  // uninitialized, unlike an array of bf16
    for (std::int64_t length; count > 0; at += length, count -= length, to += length) {
      length = std::min(count, most);
      const auto run = [&](std::int64_t of, std::byte* copy) {
        return of < k_ ? of_.run(of, at, length, reinterpret_cast<bf16*>(copy)) : no_pairs;
      };
      const bf16 *first = run(line, spare[0]), *second = run(line + 1, spare[1]);
      if constexpr (std::is_same_v<E, Pair>) std::swap(first, second);
      std::int64_t i = 0;
#if __has_builtin(__builtin_shufflevector) && !defined(__CUDACC__)
      using V = typename Vector<std::uint16_t, Registers<16, 1>>::type;
      for (; i + 8 <= length; i += 8) {
        V a, b;
        std::memcpy(&a, first + i, sizeof a);
        std::memcpy(&b, second + i, sizeof b);
        const V low = interleave<false>(a, b), high = interleave<true>(a, b);
        std::memcpy(reinterpret_cast<std::byte*>(to + i), &low, sizeof low);
        std::memcpy(reinterpret_cast<std::byte*>(to + i + 4), &high, sizeof high);
      }
#endif
      for (; i < length; ++i) to[i] = {first[i], second[i]};
    }
  }

  const Source<bf16>& of_;
  std::int64_t k_;
};
/// Returns the source that panels of E are packed from: `of`, or its pairs along k.
template <class E>
[[nodiscard]] decltype(auto) elements(const Source<Loaded<E>>& of,
                                      [[maybe_unused]] std::int64_t k) {
  if constexpr (is_pair<E>) return PairSource<E>(of, k);
  else return (of);
}

/// Transposes elements [p, end) of lines[0, count) to out[p * stride + line]. Lines from count to pack_width are 0.
template <class T>
void pack_lines_along_k(const T* const* lines, int count, std::int64_t p, std::int64_t end, T* out,
                        std::int64_t stride) {
  [[maybe_unused]] constexpr int width = pack_width<T>, depth = 16 / sizeof(T);
#if __has_builtin(__builtin_shufflevector) && !defined(__CUDACC__)
  for (; count == width && p + depth <= end; p += depth) {
    Lanes<T> block[as_size(depth)];
#pragma GCC unroll 8
    for (int i = 0; i < depth; ++i) {
      typename Vector<T, Registers<16, 1>>::type low, high;
      std::memcpy(&low, lines[i] + p, sizeof low);
      std::memcpy(&high, lines[i + width - depth] + p, sizeof high);
      order<T>(block[i] = shuffled<Lanes<T>>(low, high, [](int at) { return at; }));
    }
    transpose(block);
#pragma GCC unroll 4
    for (int i = 0; i < depth; ++i)
      std::memcpy(reinterpret_cast<std::byte*>(out + (p + i) * stride), &block[i], sizeof block[i]);
  }
#endif
  for (; p < end; ++p) {
    for (int i = 0; i < count; ++i) order<T>(out[p * stride + i] = lines[i][p]);
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
/// Copies elements [first, first + count) of lines [line, line + high) of a source to columns of `out`, whose rows are
/// `stride` apart. Columns from `high` to `most` become 0. scratch has room for `high` lines.
template <int most, class T>
void pack_transposed(const auto& source, std::int64_t line, int high, std::int64_t first,
                     std::int64_t count, T* out, std::int64_t stride, T* scratch) {
  constexpr int width = pack_width<T>;
  // The step along lines is so small that it stays in L1 until all lines have filled it.
  constexpr std::int64_t together = 64;
  const T* lines[as_size(most)];
  for (int i = 0; i < high; ++i) lines[i] = source.run(line + i, first, count, scratch + i * count);
  for (std::int64_t p = 0; p < count; p += together)
    for (int at = 0; at < most; at += width)
      pack_lines_along_k(lines + at, std::clamp(high - at, 0, width), p,
                         std::min(p + together, count), out + at, stride);
}
/// Returns runs of rows [row, row + rows) and columns [p0, p0 + depth) of a source, at most P::rows rows. scratch has
/// room for P::rows lines of a panel.
template <class R, class T>
Runs<T> runs_of_panel(const auto& source, std::int64_t row, std::int64_t rows, std::int64_t p0,
                      std::int64_t depth, Run<T>* runs, T* scratch) {
  using P = Panel<T, R>;
  if (depth == 0) return {};
  if constexpr (!std::is_same_v<T, Pair>)
    if (rows == P::rows)
      if (const int count = source.panel(row, P::rows / 2, p0, depth, runs,
                                         std::span(scratch, P::rows * P::line)))
        return {runs, as_size(count)};
  if (source.along_k) {
    source.copy(row, rows, p0, depth, scratch, P::line);
    for (auto at = rows; at < P::rows; ++at) std::fill_n(scratch + at * P::line, depth, T{});
    *runs = {scratch, scratch + P::rows / 2 * P::line, P::line, 1, depth};
  } else {
    source.copy(p0, depth, row, rows, scratch, P::rows);
    *runs = {scratch, scratch + P::rows / 2, 1, P::rows, depth};
  }
  return {runs, 1};
}

/// Packs rows [p0, p0 + depth), columns [column, column + columns) of op(B) into consecutive panels of
/// depth * P::columns elements.
template <class R, class T>
void pack_b(const auto& source, std::int64_t column, std::int64_t columns, std::int64_t p0,
            std::int64_t depth, T* out) {
  using P = Panel<T, R>;
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
    const int wide = static_cast<int>(std::min<std::int64_t>(P::columns, columns - j));
    pack_transposed<P::columns>(source, column + j, wide, p0, depth, out, P::columns, scratch);
  }
}

}  // namespace dhp::detail::cpu
