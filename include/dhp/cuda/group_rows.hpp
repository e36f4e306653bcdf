// Groups rows by their table entry, stably, by a radix sort (Satish, Harris & Garland 2009, section 4) without atomics.
#pragma once

#include <dhp/cuda/map.hpp>
#include <dhp/tensor/tensor.hpp>

#include <bit>

namespace dhp::detail::cuda {

/// The most threads of a block in this header.
inline constexpr int max_group_threads = 1024;

/// Returns the threads of a block for `count` items, in whole warps.
[[nodiscard]] inline int threads_for(std::int64_t count) {
  const auto wanted = std::min<std::int64_t>(count, max_group_threads) + warp_size - 1;
  return static_cast<int>(std::max<std::int64_t>(wanted / warp_size, 1)) * warp_size;
}

/// Replaces values[i] by the sum of values[0, i), in one block.
struct ExclusiveSum {
  static constexpr int max_threads = max_group_threads;
  std::int64_t count;
  std::int32_t* values;

  constexpr void operator()(auto& block) const {
    const int threads = block.threads();
    const int me = block.thread();
    const auto share = (count + threads - 1) / threads;
    const auto first = std::min(me * share, count);
    const auto last = std::min(first + share, count);
    std::int32_t mine = 0;
    for (auto at = first; at < last; ++at) mine += values[at];

    auto* const sums = block.template shared<std::int32_t>();
    sums[me] = mine;
    block.sync();
    for (int distance = 1; distance < threads; distance *= 2) {  // the scan of Hillis & Steele 1986
      const auto other = me >= distance ? sums[me - distance] : 0;
      block.sync();
      sums[me] += other;
      block.sync();
    }
    std::int32_t sum = sums[me] - mine;
    for (auto at = first; at < last; ++at) {
      const auto value = values[at];
      values[at] = sum;
      sum += value;
    }
  }
};

template <KernelDevice Dev>
void exclusive_sum(Dev& dev, std::int64_t count, std::int32_t* values) {
  const int threads = threads_for(count);
  launch(dev, {1, threads, as_size(threads) * sizeof(std::int32_t)}, ExclusiveSum{count, values});
}

/// Returns the entry of an id; `entries` for ids outside the table.
struct EntryOf {
  std::int64_t first_id, entries;
  constexpr std::int32_t operator()(std::int32_t id) const {
    const auto entry = id - first_id;
    return static_cast<std::int32_t>(entry >= 0 && entry < entries ? entry : entries);
  }
};

/// One digit of the keys. A block works on a tile, a thread on a row.
struct Digit {
  static constexpr int max_bits = 8;
  static constexpr int none = 1 << max_bits;  // the digit of a thread without a row
  std::int64_t rows, tiles;
  int tile;  // rows of a tile
  int shift, bits;

  [[nodiscard]] constexpr int values() const { return 1 << bits; }
  [[nodiscard]] constexpr int of(std::int32_t key) const { return key >> shift & (values() - 1); }
};

/// Sets counts[value, tile] to the tile's number of rows with digit `value`, and ranks[row] to the number of earlier
/// rows of the tile with the row's digit.
struct RankInTiles {
  static constexpr int max_threads = max_group_threads;
  Digit digit;
  const std::int32_t* keys;
  std::int32_t *counts, *ranks;

  [[nodiscard]] std::size_t shared_bytes() const {
    return as_size(digit.tile / warp_size * digit.values()) * sizeof(std::int32_t);
  }
  constexpr void operator()(auto& block) const {
    const int values = digit.values();
    const int warps = digit.tile / warp_size;
    const int warp = block.thread() / warp_size;
    const int lane = block.thread() % warp_size;
    auto* const of_warps = block.template shared<std::int32_t>();  // [warps, values]
    for (int at = block.thread(); at < warps * values; at += digit.tile) of_warps[at] = 0;
    block.sync();

    const auto row = block.index() * digit.tile + block.thread();
    const int mine = row < digit.rows ? digit.of(keys[row]) : Digit::none;
    int before = 0, all = 1;
    for (int mask = 1; mask < warp_size; ++mask) {
      const bool same = block.shuffle_xor(mine, mask) == mine;
      all += same ? 1 : 0;
      before += same && (lane ^ mask) < lane ? 1 : 0;
    }
    if (before == 0 && mine != Digit::none) of_warps[warp * values + mine] = all;
    block.sync();

    // Replaces the counts of warps by exclusive sums over warps.
    for (int value = block.thread(); value < values; value += digit.tile) {
      std::int32_t sum = 0;
      for (int at = 0; at < warps; ++at) {
        auto& place = of_warps[at * values + value];
        const auto count = place;
        place = sum;
        sum += count;
      }
      counts[value * digit.tiles + block.index()] = sum;
    }
    block.sync();
    if (mine != Digit::none) ranks[row] = of_warps[warp * values + mine] + before;
  }
};

/// Moves rows and keys to their sorted positions, which are sums of `firsts` and ranks.
struct PlaceRows {
  Digit digit;
  const std::int32_t* keys;
  const std::int32_t* rows;  // null means the identity
  const std::int32_t *firsts, *ranks;
  std::int32_t *new_keys, *new_rows;

  constexpr void operator()(auto& block) const {
    for (auto at = grid_thread(block); at < digit.rows; at += grid_threads(block)) {
      const auto key = keys[at];
      const auto to = firsts[digit.of(key) * digit.tiles + at / digit.tile] + ranks[at];
      new_keys[to] = key;
      new_rows[to] = static_cast<std::int32_t>(rows == nullptr ? at : rows[at]);
    }
  }
};

/// Sets starts[entry] to the position of the first key >= entry.
struct FindStarts {
  std::int64_t rows, entries;
  const std::int32_t* keys;
  std::int32_t* starts;

  constexpr void operator()(auto& block) const {
    for (auto entry = grid_thread(block); entry <= entries; entry += grid_threads(block)) {
      std::int64_t low = 0;
      auto high = rows;
      while (low < high) {
        const auto middle = (low + high) / 2;
        if (keys[middle] < entry) low = middle + 1;
        else high = middle;
      }
      starts[entry] = static_cast<std::int32_t>(low);
    }
  }
};

/// Rows grouped by entry, on the device.
template <class Dev>
struct GroupedRows {
  Tensor<Dev> rows;    ///< i32 [R], sorted by entry, stably; rows without an entry come last
  Tensor<Dev> keys;    ///< i32 [R], the rows' entries; `entries` for a row without one
  Tensor<Dev> starts;  ///< i32 [entries + 1]; the rows of entry e are at [starts[e], starts[e + 1])
};

/// Groups the rows of ids, i32 [R], by entry ids[r] - first_id, if this lies in [0, entries).
template <KernelDevice Dev>
[[nodiscard]] GroupedRows<Dev> group_rows(Dev& dev, ConstView<Dev> ids, std::int64_t first_id,
                                          std::int64_t entries) {
  const auto count = ids.count();
  const int tile = threads_for(count);
  const auto tiles = (count + tile - 1) / tile;
  check(count < 0x7fffffff && entries < 0x7fffffff, "rows are grouped by i32 numbers, not ", count,
        " rows of ", entries, " entries; use smaller micro-batches");
  const auto make = [&](std::int64_t size) { return Tensor<Dev>(dev, DType::i32, {size}); };
  const auto data = [](Tensor<Dev>& tensor) { return tensor.mut().template data<std::int32_t>(); };
  auto keys = make(count), new_keys = make(count), rows = make(count), new_rows = make(count);
  auto ranks = make(count), counts = make(tiles << Digit::max_bits), starts = make(entries + 1);
  map(dev, count, EntryOf{first_id, entries}, data(keys), ids.template data<std::int32_t>());

  const int bits = std::bit_width(static_cast<std::uint64_t>(entries));
  const int passes = count == 0 ? 0 : (bits + Digit::max_bits - 1) / Digit::max_bits;
  for (int pass = 0; pass < passes; ++pass) {
    const int shift = bits * pass / passes;
    const Digit digit{count, tiles, tile, shift, bits * (pass + 1) / passes - shift};
    const RankInTiles rank{digit, data(keys), data(counts), data(ranks)};
    launch(dev, {tiles, tile, rank.shared_bytes()}, rank);
    exclusive_sum(dev, digit.values() * tiles, data(counts));
    launch(dev, grid_for(dev, count),
           PlaceRows{digit, data(keys), pass == 0 ? nullptr : data(rows), data(counts), data(ranks),
                     data(new_keys), data(new_rows)});
    std::swap(keys, new_keys);
    std::swap(rows, new_rows);
  }
  launch(dev, grid_for(dev, entries + 1), FindStarts{count, entries, data(keys), data(starts)});
  return {std::move(rows), std::move(keys), std::move(starts)};
}

}  // namespace dhp::detail::cuda
