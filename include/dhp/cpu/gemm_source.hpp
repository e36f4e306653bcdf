// Source: a matrix of a product, as lines in memory. MatrixSource holds a plain matrix; a convolution has its own kinds.
#pragma once

#include <dhp/cpu/convert.hpp>
#include <dhp/cpu/gemm_kernel.hpp>

#include <algorithm>
#include <cstring>
#include <span>

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
/// If not deep, it may have `piece`, the number of contiguous elements in each piece of a line, and plain(), the whole
/// matrix if no element needs a conversion. If deep, it may have
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
        plain([&]() -> Columns<T> {
          if constexpr (requires { of.plain(); }) return of.plain();
          else return {};
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
  const Columns<T> plain;

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
  [[nodiscard]] Columns<T> plain() const {
    if constexpr (std::is_same_v<T, S>)
      if (!deep) return {data, stride};
    return {};
  }
  void prefetch(std::int64_t line, std::int64_t lines, std::int64_t first,
                std::int64_t count) const {
    for (auto at = line; at < line + lines; ++at) cpu::prefetch(data + at * stride + first, count);
  }
};

}  // namespace dhp::detail::cpu
