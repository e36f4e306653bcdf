// Packs parts of matrices into the panels of gemm_kernel.hpp, transposed and converted as needed. The elements come
// from a Source, so that convolutions pack straight from the image.
#pragma once

#include <dhp/cpu/convert.hpp>
#include <dhp/cpu/gemm_kernel.hpp>

#include <algorithm>
#include <memory>
#include <new>
#include <span>
#include <utility>

#ifdef __CUDACC__
#pragma nv_diagnostic push
#pragma nv_diag_suppress 1675  // nvcc warns of "GCC unroll", but the host compiler obeys it
#endif

namespace dhp::detail::cpu {

/// Prefetches `count` elements, which are needed soon, into the L2 cache.
template <class S>
void prefetch(const S* from, std::int64_t count) {
  constexpr auto line = static_cast<std::int64_t>(64 / sizeof(S));
  for (std::int64_t at = 0; at < count; at += line) __builtin_prefetch(from + at, 0, 2);
}

/// Copies a short run without a call to memcpy, mostly by whole vectors.
template <class T>
[[gnu::always_inline]] inline void copy_run(const T* from, T* to, std::int64_t count) {
  constexpr std::int64_t width = 32 / sizeof(T);
  const auto block = [&](std::int64_t i) {
    std::memcpy(reinterpret_cast<std::byte*>(to + i), from + i, width * sizeof(T));
  };
  std::int64_t i = 0;
  for (; i + width <= count; i += width) block(i);
  if (i == count) return;
  if (count > width) return block(count - width);  // copies some elements twice
  for (; i < count; ++i) to[i] = from[i];
}

inline constexpr int most_runs = 32;  // the largest number of Runs of a panel
/// Returns whether lines `stride` apart can be read in place; multiples of 4 KiB compete for few sets of the L1 cache.
template <class T>
[[nodiscard]] bool spreads(std::int64_t stride) {
  return stride * static_cast<std::int64_t>(sizeof(T)) % 4096 != 0;
}

/// A matrix as lines along k ("deep") or across k. Holds a reference to any object that has `deep` and
///   const T* run(line, first, count, scratch)   returns elements of a line, in place or copied to scratch
///   void prefetch(line, lines, first, count)
/// If not deep, it may have `piece`, the number of contiguous elements in each piece of a line. If deep, it may have
///   void copy(line, lines, first, count, T* to, stride)   copies several lines
///   int panel(line, half, first, count, Run* runs, scratch)   makes at most most_runs runs of 2 * half lines
///   bool is_zero(line, lines, first, count)   returns whether all these elements are known to be 0
/// If panel() makes no run, lines are copied. Source is one type, so products are compiled once, not per object type.
template <class T>
class Source {
 public:
  template <class S>
    requires(!std::is_same_v<S, Source>)
  Source(const S& of)
      : deep(of.deep),
        piece([&] {
          if constexpr (requires { of.piece; }) return of.piece;
          else return std::int64_t{1} << 40;
        }()),
        of_(reinterpret_cast<const std::byte*>(&of)),
        run_([](const std::byte* source, std::int64_t line, std::int64_t first, std::int64_t count,
                T* scratch) { return as<S>(source).run(line, first, count, scratch); }),
        copy_([](const std::byte* source, std::int64_t line, std::int64_t lines, std::int64_t first,
                 std::int64_t count, T* to, std::int64_t stride) {
          if constexpr (requires(const S& s) { s.copy(line, lines, first, count, to, stride); })
            as<S>(source).copy(line, lines, first, count, to, stride);
          else
            for (auto at = line; at < line + lines; ++at, to += stride)
              if (const T* const from = as<S>(source).run(at, first, count, to); from != to)
                copy_run(from, to, count);
        }),
        panel_([]([[maybe_unused]] const std::byte* source, [[maybe_unused]] std::int64_t line,
                  [[maybe_unused]] int half, [[maybe_unused]] std::int64_t first,
                  [[maybe_unused]] std::int64_t count, [[maybe_unused]] Run<T>* runs,
                  [[maybe_unused]] std::span<T> scratch) {
          if constexpr (requires(const S& s) { s.panel(line, half, first, count, runs, scratch); })
            return as<S>(source).panel(line, half, first, count, runs, scratch);
          else return 0;
        }),
        prefetch_([](const std::byte* source, std::int64_t line, std::int64_t lines,
                     std::int64_t first,
                     std::int64_t count) { as<S>(source).prefetch(line, lines, first, count); }),
        is_zero_([]([[maybe_unused]] const std::byte* source, [[maybe_unused]] std::int64_t line,
                    [[maybe_unused]] std::int64_t lines, [[maybe_unused]] std::int64_t first,
                    [[maybe_unused]] std::int64_t count) {
          if constexpr (requires(const S& s) { s.is_zero(line, lines, first, count); })
            return as<S>(source).is_zero(line, lines, first, count);
          else return false;
        }) {}
  const T* run(std::int64_t line, std::int64_t first, std::int64_t count, T* scratch) const {
    return run_(of_, line, first, count, scratch);
  }
  void copy(std::int64_t line, std::int64_t lines, std::int64_t first, std::int64_t count, T* to,
            std::int64_t stride) const {
    copy_(of_, line, lines, first, count, to, stride);
  }
  int panel(std::int64_t line, int half, std::int64_t first, std::int64_t count, Run<T>* runs,
            std::span<T> scratch) const {
    return panel_(of_, line, half, first, count, runs, scratch);
  }
  void prefetch(std::int64_t line, std::int64_t lines, std::int64_t first,
                std::int64_t count) const {
    prefetch_(of_, line, lines, first, count);
  }
  [[nodiscard]] bool is_zero(std::int64_t line, std::int64_t lines, std::int64_t first,
                             std::int64_t count) const {
    return is_zero_(of_, line, lines, first, count);
  }
  const bool deep;
  const std::int64_t piece;

 private:
  template <class S>
  static const S& as(const std::byte* source) {
    return *reinterpret_cast<const S*>(source);
  }

  const std::byte* of_;
  const T* (*run_)(const std::byte*, std::int64_t, std::int64_t, std::int64_t, T*);
  void (*copy_)(const std::byte*, std::int64_t, std::int64_t, std::int64_t, std::int64_t, T*,
                std::int64_t);
  int (*panel_)(const std::byte*, std::int64_t, int, std::int64_t, std::int64_t, Run<T>*,
                std::span<T>);
  void (*prefetch_)(const std::byte*, std::int64_t, std::int64_t, std::int64_t, std::int64_t);
  bool (*is_zero_)(const std::byte*, std::int64_t, std::int64_t, std::int64_t, std::int64_t);
};

/// Prefetches lines of a source in `steps` parts: one part before each product of panels.
template <class T>
struct Ahead {
  const Source<T>& of;
  std::int64_t line, end, first, count, together;

  /// Selects rows or columns [start, start + across), elements [p0, p0 + depth) along k.
  Ahead(const Source<T>& source, std::int64_t start, std::int64_t across, std::int64_t p0,
        std::int64_t depth, std::int64_t steps)
      : of(source),
        line(source.deep ? start : p0),
        end(line + (source.deep && depth > 0 ? across : std::max<std::int64_t>(depth, 0))),
        first(source.deep ? p0 : start),
        count(source.deep ? depth : across),
        together((end - line + steps - 1) / steps) {}
  void prefetch() {
    if (line >= end) return;
    of.prefetch(line, std::min(together, end - line), first, count);
    line += together;
  }
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
  int panel(std::int64_t line, int half, std::int64_t first, std::int64_t count, Run<T>* runs,
            std::span<T> /*scratch*/) const {
    if constexpr (std::is_same_v<T, S>) {
      if (!spreads<T>(stride)) return 0;
      const T* const upper = data + line * stride + first;
      *runs = {upper, upper + half * stride, stride, count};
      return 1;
    } else {
      return 0;
    }
  }
  void prefetch(std::int64_t line, std::int64_t lines, std::int64_t first,
                std::int64_t count) const {
    for (auto at = line; at < line + lines; ++at) cpu::prefetch(data + at * stride + first, count);
  }
};

/// The number of lines that are transposed together: the elements of a native vector, whatever the panel's width.
template <class T>
inline constexpr int pack_width = Panel<T, Native>::width;
/// Swaps the halves of pairs, from memory order to panel order. Leaves other elements unchanged.
template <class V>
void order([[maybe_unused]] V& block) {
  if constexpr (std::is_same_v<V, Pair>) std::swap(block.first, block.second);
  else if constexpr (std::is_same_v<V, Vector<Pair>::type>) block = block << 16 | block >> 16;
}

/// Presents a bf16 matrix as pairs along k, padded with 0 if k is odd. run() returns pairs in memory order if the
/// matrix is deep, else in panel order. scratch holds one run of pairs, or two if the matrix is not deep.
struct PairSource {
  Source<bf16> of;
  std::int64_t k;
  const bool deep = of.deep;
  const std::int64_t piece = of.piece;

  [[nodiscard]] bool is_zero(std::int64_t line, std::int64_t lines, std::int64_t first,
                             std::int64_t count) const {
    return deep && of.is_zero(line, lines, 2 * first, std::min(2 * count, k - 2 * first));
  }
  /// Copies lines as pairs in panel order.
  void copy(std::int64_t line, std::int64_t lines, std::int64_t first, std::int64_t count, Pair* to,
            std::int64_t stride) const {
    const auto length = std::min(2 * count, k - 2 * first);
    of.copy(line, lines, 2 * first, length, reinterpret_cast<bf16*>(to), 2 * stride);
    for (; lines > 0; --lines, to += stride) {
      if (length < 2 * count) to[count - 1].second = bf16(0.0f);
      std::int64_t p = 0;
      for (; p + pack_width<Pair> <= count; p += pack_width<Pair>) {
        Vector<Pair>::type block;
        std::memcpy(&block, to + p, sizeof block);
        order(block);
        std::memcpy(reinterpret_cast<std::byte*>(to + p), &block, sizeof block);
      }
      for (; p < count; ++p) order(to[p]);
    }
  }
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
/// Returns the source that panels of E are packed from: `of`, or its pairs along k if E is Pair.
template <class E>
[[nodiscard]] auto elements(const Source<Loaded<E>>& of, std::int64_t k) {
  if constexpr (std::is_same_v<E, Pair>) return PairSource{of, k};
  else return of;
}

/// Frees the memory of a Buffer, which is aligned to cache lines and uninitialized.
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

/// Number of elements in a lane of 16 bytes. Shuffles within a lane cost least.
template <class T>
inline constexpr int lane_width = 16 / sizeof(T);
template <class T, int bytes>
using Bytes = typename Vector<T, Registers<bytes, 1>>::type;

// Interleaves lanes of a and b: a0 b0 a1 b1, and so on. first is 0 for lower halves of lanes, lane / 2 for upper ones.
template <int lane, int first, class V, int... at>
V interleave(V a, V b, std::integer_sequence<int, at...>) {
#ifdef __CUDACC__  // nvcc 13 does not expand the pack `at` below
  V out;
  for (int to = 0; to < static_cast<int>(sizeof...(at)); ++to)
    out[to] = (to % 2 == 0 ? a : b)[to / lane * lane + first + to % lane / 2];
  return out;
#else
  constexpr int width = sizeof...(at);
  return __builtin_shufflevector(a, b,
                                 (at / lane * lane + first + at % lane / 2 + at % 2 * width)...);
#endif
}
template <class V, class Half, int... at>
V join(Half lower, Half upper, std::integer_sequence<int, at...>) {
#ifdef __CUDACC__
  V out;
  for (int to = 0; to < static_cast<int>(sizeof...(at)) / 2; ++to) {
    out[to] = lower[to];
    out[to + static_cast<int>(sizeof...(at)) / 2] = upper[to];
  }
  return out;
#else
  return __builtin_shufflevector(lower, upper, at...);
#endif
}
/// Loads a vector from one lane of each lane_width-th line, at element p.
template <class T, int bytes = Native::bytes>
Bytes<T, bytes> load_lanes(const T* const* lines, std::int64_t p) {
  using V = Bytes<T, bytes>;
  if constexpr (bytes == 16) {
    V lane;
    std::memcpy(&lane, *lines + p, sizeof lane);
    return lane;
  } else {
    constexpr int width = bytes / static_cast<int>(sizeof(T));
    return join<V>(load_lanes<T, bytes / 2>(lines, p),
                   load_lanes<T, bytes / 2>(lines + width / 2, p),
                   std::make_integer_sequence<int, width>{});
  }
}
/// Transposes lane_width vectors lane by lane, with perfect shuffles.
template <class T>
void transpose_lanes(Bytes<T, Native::bytes> (&block)[lane_width<T>]) {
  constexpr int lane = lane_width<T>;
  using V = Bytes<T, Native::bytes>;
  using Sequence = std::make_integer_sequence<int, pack_width<T>>;
#pragma GCC unroll 4
  for (int round = 1; round < lane; round *= 2) {
    V next[lane];
#pragma GCC unroll 4
    for (int i = 0; i < lane / 2; ++i) {
      next[2 * i] = interleave<lane, 0>(block[i], block[i + lane / 2], Sequence{});
      next[2 * i + 1] = interleave<lane, lane / 2>(block[i], block[i + lane / 2], Sequence{});
    }
#pragma GCC unroll 4
    for (int i = 0; i < lane; ++i) block[i] = next[i];
  }
}

/// Transposes elements [p, end) of lines[0, count) to out[p * stride + line]. Lines from count to pack_width are 0.
template <class T>
void pack_deep_lines(const T* const* lines, int count, std::int64_t p, std::int64_t end, T* out,
                     std::int64_t stride) {
  constexpr int width = pack_width<T>, lane = lane_width<T>;
  if (count == width) {
    for (; p + lane <= end; p += lane) {
      Bytes<T, Native::bytes> block[lane];
#pragma GCC unroll 4
      for (int i = 0; i < lane; ++i) {
        block[i] = load_lanes(lines + i, p);
        order(block[i]);
      }
      transpose_lanes<T>(block);
#pragma GCC unroll 4
      for (int i = 0; i < lane; ++i)
        std::memcpy(reinterpret_cast<std::byte*>(out + (p + i) * stride), &block[i],
                    sizeof block[i]);
    }
  }
  for (; p < end; ++p) {
    for (int i = 0; i < count; ++i) order(out[p * stride + i] = lines[i][p]);
    for (int i = count; i < width; ++i) out[p * stride + i] = T{};
  }
}

/// Number of lines across k that are packed together, because panels lie far apart and often share cache sets.
inline constexpr int flat_lines = 8;
/// Packs elements [first, first + count) of lines [line, line + depth) of a source that is not deep. Each panel has
/// depth * stride elements and takes `used` elements of each line. scratch has (flat_lines + 1) * count elements.
template <int used, int stride, class T>
void pack_flat(const auto& source, std::int64_t line, std::int64_t depth, std::int64_t first,
               std::int64_t count, T* out, T* scratch) {
  for (std::int64_t p = 0; p < depth; p += flat_lines, out += flat_lines * stride) {
    const T* lines[flat_lines];
    const int high = static_cast<int>(std::min<std::int64_t>(flat_lines, depth - p));
    for (int i = 0; i < high; ++i)
      lines[i] = source.run(line + p + i, first, count, scratch + i * count);
    T* panel = out;
    for (std::int64_t j = 0; j < count; j += used, panel += depth * stride) {
      for (int i = 0; i < high; ++i) {
        const T* const from = lines[i] + j;
        T* const to = panel + i * stride;
        if (j + stride <= count) std::memcpy(to, from, stride * sizeof(T));
        else if (j + used <= count) std::memcpy(to, from, used * sizeof(T));
        else
          for (int at = 0; at < used; ++at) to[at] = j + at < count ? from[at] : T{};
      }
    }
  }
}

/// Returns the runs of rows [row, row + rows) and columns [p0, p0 + depth) of a deep source, or none if all are zeros.
/// `rows` is at most P::rows. scratch has room for P::rows lines.
template <class R, class T>
std::span<const Run<T>> deep_panel(const auto& source, std::int64_t row, std::int64_t rows,
                                   std::int64_t p0, std::int64_t depth, Run<T>* runs, T* scratch) {
  using P = Panel<T, R>;
  if (depth == 0 || source.is_zero(row, rows, p0, depth)) return {};
  if constexpr (!P::pairs)
    if (rows == P::rows)
      if (const int count = source.panel(row, P::rows / 2, p0, depth, runs,
                                         std::span(scratch, P::rows * P::line)))
        return {runs, runs + count};
  source.copy(row, rows, p0, depth, scratch, P::line);
  for (auto at = rows; at < P::rows; ++at) std::fill_n(scratch + at * P::line, depth, T{});
  *runs = {scratch, scratch + P::rows / 2 * P::line, P::line, depth};
  return {runs, runs + 1};
}

/// Packs rows [p0, p0 + depth), columns [column, column + columns) of op(B) into consecutive panels of
/// depth * P::columns elements. scratch has max(P::columns * depth, (flat_lines + 1) * columns) elements.
template <class R, class T>
void pack_b(const auto& source, std::int64_t column, std::int64_t columns, std::int64_t p0,
            std::int64_t depth, T* out, T* scratch) {
  using P = Panel<T, R>;
  constexpr int width = pack_width<T>;
  // Panels are packed in steps of this depth, so that a step stays in L1 until all lines of the panel have filled it.
  constexpr std::int64_t together = 64;
  if (depth == 0) return;
  if (!source.deep) {  // piece by contiguous piece
    const auto piece = source.piece % P::columns == 0 ? source.piece : column + columns;
    for (std::int64_t j = 0, wide; j < columns; j += wide, out += wide * depth) {
      wide = std::min(columns - j, piece - (column + j) % piece);
      pack_flat<P::columns, P::columns>(source, p0, depth, column + j, wide, out, scratch);
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
        pack_deep_lines(lines + first, std::clamp(wide - first, 0, width), p,
                        std::min(p + together, depth), out + first, P::columns);
  }
}

}  // namespace dhp::detail::cpu

#ifdef __CUDACC__
#pragma nv_diagnostic pop
#endif
