// Sums the rows of each table entry, without atomics, in an order that depends only on that entry's rows. Short lists
// are summed sequentially, as on the Cpu. Lists of more than `long_list` rows are cut into parts of this length, whose
// rows are summed in order. Then each of eight threads sums every eighth part, and a tree adds their results. One entry
// with all rows is thus as fast as many entries.
#pragma once

#include <dhp/cuda/group_rows.hpp>
#include <dhp/cuda/matrix_walk.hpp>

namespace dhp::detail::cuda {

/// Lists longer than this are summed in parts of this many rows.
inline constexpr std::int64_t long_list = 64;

/// The lists of rows, in the form of GroupedRows.
struct RowLists {
  std::int64_t count;  // number of all rows
  std::int64_t entries;
  const std::int32_t *rows, *keys, *starts;

  /// Positions [first, last) in `rows` that belong to one entry: all of them, or a part.
  struct Part {
    std::int64_t entry, first, last;
  };
  [[nodiscard]] constexpr Part all_of(std::int64_t entry) const {
    return {entry, starts[entry], starts[entry + 1]};
  }
  /// Returns the long list that contains this position, or an empty part.
  [[nodiscard]] constexpr Part long_list_at(std::int64_t place) const {
    if (place >= count || keys[place] >= entries) return {0, 0, 0};
    const auto list = all_of(keys[place]);
    return list.last - list.first > long_list ? list : Part{0, 0, 0};
  }
  // Parts get slots without counting. All positions are cut into windows of long_list. A window contains the start of
  // at most one long list and the start of at most one later part, so it has two slots.
  [[nodiscard]] constexpr std::int64_t windows() const {
    return (count + long_list - 1) / long_list;
  }
  /// Returns the long list that starts in the window; such a list reaches into the next window.
  [[nodiscard]] constexpr Part beginning_in(std::int64_t window) const {
    const auto next = (window + 1) * long_list;
    const auto list = long_list_at(next);
    return list.first >= next - long_list && list.first < next ? list : Part{0, 0, 0};
  }
  [[nodiscard]] constexpr std::int64_t slot_of(const Part& list, std::int64_t part) const {
    return 2 * ((list.first + part * long_list) / long_list) + (part > 0 ? 1 : 0);
  }
  [[nodiscard]] constexpr Part part_in(std::int64_t slot) const {
    const auto begin = slot / 2 * long_list;
    auto part = slot % 2 == 0 ? beginning_in(slot / 2) : long_list_at(begin);
    if (slot % 2 == 1) {  // the next part of a list that starts in an earlier window
      if (part.first >= begin) return {0, 0, 0};
      part.first += (begin - part.first + long_list - 1) / long_list * long_list;
    }
    if (part.first >= part.last) return {0, 0, 0};
    return {part.entry, part.first, std::min(part.first + long_list, part.last)};
  }
};

/// Adds the rows at the positions of `part`, in order; loads rows ahead.
template <int width, class T, class A>
constexpr void add_rows(const RowLists& lists, const RowLists::Part& part, const T* x,
                        std::int64_t columns, std::int64_t column, Pack<A, width>& sums) {
  constexpr int ahead = 4;
  x += column;
  auto place = part.first;
  for (; place + ahead <= part.last; place += ahead) {
    Pack<T, width> in[ahead];
    for (int i = 0; i < ahead; ++i) in[i] = load<width>(x + lists.rows[place + i] * columns);
    for (int i = 0; i < ahead; ++i)
      for (int at = 0; at < width; ++at) sums.at[at] += static_cast<A>(in[i].at[at]);
  }
  for (; place < part.last; ++place) {
    const auto in = load<width>(x + lists.rows[place] * columns);
    for (int at = 0; at < width; ++at) sums.at[at] += static_cast<A>(in.at[at]);
  }
}

template <int width, class A>
[[nodiscard]] constexpr Pack<A, width> no_sum() {
  Pack<A, width> sums;
  for (int at = 0; at < width; ++at) sums.at[at] = A(0);
  return sums;
}
/// Returns beta * y; with beta 0, y is not read.
template <int width, class A, class Y>
[[nodiscard]] constexpr Pack<A, width> scaled(A beta, const Y* y) {
  auto sums = no_sum<width, A>();
  if (beta == A(0)) return sums;
  const auto old = load<width>(y);
  for (int at = 0; at < width; ++at) sums.at[at] = beta * static_cast<A>(old.at[at]);
  return sums;
}
/// Sets y[entry] = beta * y[entry] + its rows, for short lists. One warp works on an entry and a group of columns.
template <class T, class Y, int width>
struct SumShortLists {
  using A = Accumulator<T>;
  RowLists lists;
  std::int64_t columns;
  const T* x;
  A beta;
  Y* y;

  constexpr void operator()(auto& block) const {
    const auto slabs = (columns + warp_size * width - 1) / (warp_size * width);
    for (auto at = walk_by_warp(block, slabs); at.row < lists.entries; at.next()) {
      const auto list = lists.all_of(at.row);
      if (list.last - list.first > long_list) continue;
      if (list.last == list.first && beta == A(1)) continue;
      const auto column = (at.column * warp_size + block.thread() % warp_size) * width;
      if (column >= columns) continue;
      Y* const to = y + at.row * columns + column;
      auto sums = scaled<width>(beta, to);
      add_rows<width>(lists, list, x, columns, column, sums);
      store_rounded(to, sums);
    }
  }
};

/// Sets parts[slot] to the sum of the slot's part.
template <class T, int width>
struct SumRowParts {
  using A = Accumulator<T>;
  RowLists lists;
  std::int64_t columns;
  const T* x;
  A* parts;

  constexpr void operator()(auto& block) const {
    const auto slabs = (columns + warp_size * width - 1) / (warp_size * width);
    for (auto at = walk_by_warp(block, slabs); at.row < 2 * lists.windows(); at.next()) {
      const auto part = lists.part_in(at.row);
      const auto column = (at.column * warp_size + block.thread() % warp_size) * width;
      if (part.first == part.last || column >= columns) continue;
      auto sums = no_sum<width, A>();
      add_rows<width>(lists, part, x, columns, column, sums);
      store<width>(parts + at.row * columns + column, sums);
    }
  }
};

/// Sets y[entry] = beta * y[entry] + its parts, for entries with more than long_list rows. One block works on an entry
/// and a group of columns.
template <class A, class Y, int width>
struct AddRowParts {
  static constexpr int together = 8;
  static constexpr std::size_t shared_bytes = together * warp_size * sizeof(Pack<A, width>);
  RowLists lists;
  std::int64_t columns;
  const A* parts;
  A beta;
  Y* y;

  constexpr void operator()(auto& block) const {
    const auto slabs = (columns + warp_size * width - 1) / (warp_size * width);
    for (auto at = walk_by_block(block, slabs); at.row < lists.windows(); at.next()) {
      const auto list = lists.beginning_in(at.row);
      if (list.first == list.last) continue;
      const int warp = block.thread() / warp_size;
      const auto column = (at.column * warp_size + block.thread() % warp_size) * width;
      const bool inside = column < columns;
      const auto count = (list.last - list.first + long_list - 1) / long_list;
      auto sums = no_sum<width, A>();
      for (std::int64_t part = warp; part < count && inside; part += together) {
        const auto in = load<width>(parts + lists.slot_of(list, part) * columns + column);
        for (int i = 0; i < width; ++i) sums.at[i] += in.at[i];
      }
      auto* const shared = block.template shared<Pack<A, width>>();
      for (int half = together / 2; half > 0; half /= 2) {
        shared[block.thread()] = sums;
        block.sync();
        if (warp < half)
          for (int i = 0; i < width; ++i)
            sums.at[i] += shared[block.thread() + half * warp_size].at[i];
        block.sync();
      }
      if (warp > 0 || !inside) continue;
      Y* const to = y + list.entry * columns + column;
      auto total = scaled<width>(beta, to);
      for (int i = 0; i < width; ++i) total.at[i] += sums.at[i];
      store_rounded(to, total);
    }
  }
};

/// Sets y[e] = beta * y[e] + the sum of x[r] over rows with ids[r] - first_id == e; x [R, C], ids i32 [R], y [entries,
/// C]. Skips other ids.
template <class T, class Y, KernelDevice Dev>
void sum_rows(Dev& dev, ConstView<Dev> x, ConstView<Dev> ids, std::int64_t first_id, double beta,
              View<Dev> y) {
  using A = Accumulator<T>;
  if (y.count() == 0) return;
  const auto columns = y.columns();
  const auto entries = y.count() / columns;
  auto grouped = group_rows(dev, ids, first_id, entries);
  const auto data = [](const Tensor<Dev>& of) { return of.view().template data<std::int32_t>(); };
  const RowLists lists{ids.count(), entries, data(grouped.rows), data(grouped.keys),
                       data(grouped.starts)};
  const T* const from = x.data();
  Y* const to = y.data();
  const auto factor = static_cast<A>(beta);
  const auto of_width = [&]<int width>(std::integral_constant<int, width>) {
    const auto slabs = (columns + warp_size * width - 1) / (warp_size * width);
    launch(dev, grid_for(dev, entries * slabs * warp_size),
           SumShortLists<T, Y, width>{lists, columns, from, factor, to});
    if (lists.count <= long_list) return;
    Tensor<Dev> parts(dev, dtype_of<A>(), {2 * lists.windows(), columns});
    A* const sums = parts.mut().data();
    launch(dev, grid_for(dev, 2 * lists.windows() * slabs * warp_size),
           SumRowParts<T, width>{lists, columns, from, sums});
    using Add = AddRowParts<A, Y, width>;
    launch(dev,
           {std::min<std::int64_t>(lists.windows() * slabs, max_blocks(dev)),
            Add::together * warp_size, Add::shared_bytes},
           Add{lists, columns, sums, factor, to});
  };
  // A pack has 16 bytes of a sum, not of x, because wider sums would take two stores with gaps between threads.
  with_width<pack_size<A>, 1>(columns, of_width, from, to);
}

}  // namespace dhp::detail::cuda
