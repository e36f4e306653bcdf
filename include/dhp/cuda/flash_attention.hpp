// dhp's own attention in bf16 and fp16, on tensor cores (Dao 2023, "FlashAttention-2"). A block keeps rows of one head
// and goes over the others in tiles: queries over keys forward and for dq, keys over queries for dk and dv. Scores and
// sums are fp32 in registers; probabilities are rounded for the product with the values. Sums have a fixed order.
#pragma once

#include <dhp/cuda/attention_place.hpp>
#include <dhp/cuda/warp_product.hpp>

#include <limits>
#include <numbers>

namespace dhp::detail::cuda {

/// What a block keeps of a query in shared memory.
struct FlashQuery {
  std::uint64_t number;      ///< the random index of its first probability
  float logsumexp, product;  ///< base 2; dy . y
};

/// The tiles of a block. width: of a head, padded with zeros; row_tiles: of 16 rows, that a warp keeps.
template <class T, int width, int row_tiles, int kept>
struct FlashTiles {
  using Tile = MatrixTile<T, width>;
  static constexpr int warps = 4;
  static constexpr int threads = warps * warp_size;
  static constexpr int rows = warps * row_tiles * 16;
  static constexpr int others = 4096 / width;  ///< at a time
  static constexpr std::size_t shared_bytes =
      (kept * rows + 2 * others) * Tile::stride * sizeof(T) +
      std::max(rows, others) * sizeof(FlashQuery);

  Tile own, own_values, other, other_values;
  FlashQuery* queries;

  template <class B>
  explicit constexpr FlashTiles(B& block)
      : own{block.template shared<T>()},
        own_values{own.row((kept - 1) * rows)},
        other{own.row(kept * rows)},
        other_values{other.row(others)},
        queries(reinterpret_cast<FlashQuery*>(other_values.row(others))) {}
};

/// Loads rows of a head, from row `first`; 0 beyond its length and columns.
template <int rows, class B, class T, int width>
constexpr void load_tile(const B& block, const AttentionPlace& place,
                         const AttentionPlace::Head& head, const T* from, std::int64_t row_stride,
                         std::int64_t first, const MatrixTile<T, width>& to) {
  constexpr int packs = width / pack_size<T>;
  const int count = rows_present(head.length - first, rows);
  const T* const begin = from + place.at(head, first, row_stride);
  for (int at = block.thread(); at < rows * packs; at += block.threads()) {
    const int row = at / packs, column = at % packs * pack_size<T>;
    Pack<T> pack{};
    if (row < count && column < place.size)
      pack = load<pack_size<T>>(begin + row * row_stride + column);
    store(to.row(row) + column, pack);
  }
}

/// Stores columns [first_column, + columns) of rows of a head, from row `first`; 0 in its padding.
template <int rows, int columns, class B, class T, int width>
constexpr void store_tile(const B& block, const AttentionPlace& place,
                          const AttentionPlace::Head& head, const MatrixTile<T, width>& from,
                          std::int64_t first, int first_column, T* to, std::int64_t row_stride) {
  constexpr int packs = columns / pack_size<T>;
  for (int at = block.thread(); at < rows * packs; at += block.threads()) {
    const int row = at / packs, column = first_column + at % packs * pack_size<T>;
    if (first + row >= head.rows || column >= place.size) continue;
    Pack<T> pack{};
    if (first + row < head.length) pack = load<pack_size<T>>(from.row(row) + column);
    store(to + place.at(head, first + row, row_stride) + column, pack);
  }
}

/// logsumexp and products may be null. Queries beyond the length get probabilities of 0.
template <int count, class B>
constexpr void load_queries(const B& block, const AttentionPlace& place,
                            const AttentionPlace::Head& head, const float* logsumexp,
                            const float* products, std::int64_t first, FlashQuery* to) {
  for (int at = block.thread(); at < count; at += block.threads()) {
    FlashQuery query{0, std::numeric_limits<float>::infinity(), 0};
    if (const auto row = first + at; row < head.length) {
      const auto place_of_row = head.head * place.rows + head.first_row + row;
      query.number = place.first_number(head, row);
      if (logsumexp != nullptr) {
        query.logsumexp = logsumexp[place_of_row] * std::numbers::log2e_v<float>;
        query.product = products[place_of_row];
      }
    }
    to[at] = query;
  }
}

/// Of the probabilities beside `sums` of a warp, those that dropout keeps: bit 4 j + e of number e of sums[j]. Rows are
/// queries, or with of_keys keys; `queries` and `key` are those of row and column 0. Where it can be, a lane draws four
/// keys with one Philox block, and gives its neighbors what is theirs. Columns from `count` on get any bits.
template <bool of_keys, class B>
[[nodiscard]] constexpr std::uint32_t kept_by_dropout(B& block, const AttentionPlace& place,
                                                      const RandomStream& random,
                                                      const FlashQuery* queries, std::int64_t key,
                                                      int count) {
  const int lane = block.thread() % warp_size, g = lane / 4, t = lane % 4;
  const bool aligned = place.max_length % 4 == 0;
  const auto number_of = [&](int query, int offset) {
    return queries[query].number + static_cast<std::uint64_t>(key + offset);
  };
  const auto draw = [&](std::uint64_t number) {  // four bits
    const auto words = random.block(number / 4);
    std::uint32_t bits = 0;
    unrolled<4>([&](auto at) { bits |= (words[at] >> 8 >= place.threshold ? 1u : 0u) << at; });
    return bits;
  };
  std::uint32_t kept = 0;
  for (int j = 0; 8 * j < count; ++j) {
    std::uint32_t four = 0;
    if (!aligned) {
      for (int e = 0; e < 4; ++e) {
        const int row = g + e / 2 * 8, column = 8 * j + 2 * t + e % 2;
        const auto number = number_of(of_keys ? column : row, of_keys ? row : column);
        four |= (draw(number) >> number % 4 & 1) << e;
      }
    } else if constexpr (of_keys) {  // four lanes have the four keys of each of their numbers
      const int mine = g % 4;
      auto all = draw(number_of(8 * j + 2 * t + mine % 2, g / 4 * 4 + mine / 2 * 8)) << 4 * mine;
      all |= block.shuffle_xor(all, 4);
      all |= block.shuffle_xor(all, 8);
      for (int e = 0; e < 4; ++e) four |= (all >> (4 * e + mine) & 1) << e;
    } else {  // two lanes have two of four keys each, in two rows
      const int mine = t % 2;
      auto all = draw(number_of(g + 8 * mine, 8 * j + t / 2 * 4)) << 4 * mine;
      all |= block.shuffle_xor(all, 1);
      all >>= 2 * mine;
      four = (all & 3) | (all >> 2 & 12);
    }
    kept |= four << 4 * j;
  }
  return kept;
}

/// Keys from `count` on get a probability of 0.
template <class B, int n>
constexpr void hide_columns(const B& block, int count, WarpSums<n>& scores) {
  const int column = block.thread() % 4 * 2;
  unrolled<n>([&](auto j) {
    unrolled<4>([&](auto e) {
      if (8 * j + column + e % 2 >= count) scores[j][e] = -std::numeric_limits<float>::infinity();
    });
  });
}

template <class T, int width_>
struct FlashAttentionForward {
  static constexpr int width = width_, row_tiles = width <= 128 ? 2 : 1, parts = 1;
  using Tiles = FlashTiles<T, width, row_tiles, 1>;
  static constexpr int most_threads = Tiles::threads;
  AttentionPlace place;
  std::int64_t groups;  ///< of rows, per head
  const T *q, *k, *v;
  T* y;
  float* logsumexp;

  template <class B>
  constexpr void operator()(B& block) const {
    const auto head = place.head_of(block.index() / groups);
    auto first = block.index() % groups * Tiles::rows;
    const Tiles tiles(block);
    if (first < head.length) attend(block, head, first, tiles);
    for (; first < head.rows; first += groups * Tiles::rows) {
      store_tile<Tiles::rows, width>(block, place, head, tiles.own, first, 0, y, place.columns);
      for (int row = block.thread(); row < Tiles::rows; row += block.threads())
        if (first + row < head.rows)
          logsumexp[head.head * place.rows + head.first_row + first + row] =
              first + row < head.length ? tiles.queries[row].logsumexp : 0.0f;
    }
  }

 private:
  template <class B>
  constexpr void attend(B& block, const AttentionPlace::Head& head, std::int64_t first,
                        const Tiles& tiles) const {
    constexpr int n = Tiles::others / 8;
    const int row = block.thread() / warp_size * row_tiles * 16;  // this warp's first
    const auto random = place.stream();
    const float scale = static_cast<float>(place.scale * std::numbers::log2e);
    load_tile<Tiles::rows>(block, place, head, q, place.stride, first, tiles.own);
    load_queries<Tiles::rows>(block, place, head, nullptr, nullptr, first, tiles.queries);
    float most[row_tiles][2], sum[row_tiles][2] = {};
    for (auto& both : most) both[0] = both[1] = -std::numeric_limits<float>::infinity();
    WarpSums<width / 8> mixed[row_tiles] = {};
    for (std::int64_t key = 0; key < head.length; key += Tiles::others) {
      block.sync();
      load_tile<Tiles::others>(block, place, head, k, place.stride, key, tiles.other);
      load_tile<Tiles::others>(block, place, head, v, place.stride, key, tiles.other_values);
      block.sync();
      if (first + row >= head.length) continue;
      const int count = rows_present(head.length - key, Tiles::others);
      WarpSums<n> scores[row_tiles] = {};
      multiply_rows(block, tiles.own, row, tiles.other, scores);
      unrolled<row_tiles>([&](auto i) {
        if (count < Tiles::others) hide_columns(block, count, scores[i]);
        unrolled<2>(
            [&](auto half) { raise(block, scale, scores[i], most[i], sum[i], mixed[i], half); });
        if (place.threshold == 0) return;
        const auto kept =
            kept_by_dropout<false>(block, place, random, tiles.queries + row + 16 * i, key, count);
        unrolled<4 * n>([&](auto at) {
          if ((kept >> at & 1) == 0) scores[i][at / 4][at % 4] = 0;
        });
      });
      multiply_sums(block, scores, tiles.other_values, 0, mixed);
    }
    block.sync();
    if (first + row < head.length)
      unrolled<row_tiles>([&](auto i) {
        const float kept = 1 / (1 - static_cast<float>(place.dropout));
        float factor[2];
        unrolled<2>([&](auto half) {
          float total = sum[i][half] + block.shuffle_xor(sum[i][half], 1);
          total += block.shuffle_xor(total, 2);
          factor[half] = kept / total;
          if (block.thread() % 4 == 0)
            tiles.queries[row + 16 * i + 8 * half + block.thread() % warp_size / 4].logsumexp =
                most[i][half] * static_cast<float>(place.scale) + std::log(total);
        });
        store_sums(block, mixed[i], factor[0], factor[1], tiles.own, row + 16 * i, 0);
      });
    block.sync();
  }

  /// Scores of one row of each lane's two become powers relative to the highest so far, and what was summed relative to
  /// another follows.
  template <class B, int n, class Half>
  static constexpr void raise(B& block, float scale, WarpSums<n>& scores, float (&most)[2],
                              float (&sum)[2], WarpSums<width / 8>& mixed, Half half) {
    const auto each = [](auto count, const auto& body) {
      unrolled<2 * count>([&](auto at) { body(at / 2, 2 * Half::value + at % 2); });
    };
    float highest = most[half], powers = 0;
    each(std::integral_constant<int, n>(),
         [&](int j, int e) { highest = Largest{}(highest, scores[j][e]); });
    highest = Largest{}(highest, block.shuffle_xor(highest, 1));
    highest = Largest{}(highest, block.shuffle_xor(highest, 2));
    const float kept = power_of_two((most[half] - highest) * scale);  // 0 at first
    each(std::integral_constant<int, n>(), [&](int j, int e) {
      scores[j][e] = power_of_two(scores[j][e] * scale - highest * scale);
      powers += scores[j][e];
    });
    each(std::integral_constant<int, width / 8>(), [&](int j, int e) { mixed[j][e] *= kept; });
    most[half] = highest;
    sum[half] = sum[half] * kept + powers;
  }
};

/// dq, or with of_keys dk and dv: see AttentionGradient. A block has at most 128 columns of dk and dv, since there are
/// twice as many sums in its registers.
template <class T, int width_, bool of_keys>
struct FlashAttentionGradient {
  static constexpr int width = width_, columns = of_keys ? std::min(width, 128) : width;
  static constexpr int parts = width / columns;
  using Tiles = FlashTiles<T, width, 1, 2>;
  static constexpr int most_threads = Tiles::threads;
  AttentionPlace place;
  std::int64_t groups;
  const T *dy, *q, *k, *v;
  const float *logsumexp, *products;
  T *dx, *dv;  ///< dq, or dk and dv

  template <class B>
  constexpr void operator()(B& block) const {
    const auto head = place.head_of(block.index() / parts / groups);
    auto first = block.index() / parts % groups * Tiles::rows;
    const auto column = static_cast<int>(block.index() % parts) * columns;
    const Tiles tiles(block);
    if (first < head.length) attend(block, head, first, column, tiles);
    for (; first < head.rows; first += groups * Tiles::rows) {
      store_tile<Tiles::rows, columns>(block, place, head, tiles.own, first, column, dx,
                                       place.stride);
      if constexpr (of_keys)
        store_tile<Tiles::rows, columns>(block, place, head, tiles.own_values, first, column, dv,
                                         place.stride);
    }
  }

 private:
  template <class B>
  constexpr void attend(B& block, const AttentionPlace::Head& head, std::int64_t first, int column,
                        const Tiles& tiles) const {
    constexpr int n = Tiles::others / 8;
    const int row = block.thread() / warp_size * 16;  // this warp's first
    const int g = block.thread() % warp_size / 4, t = block.thread() % 4;
    const auto random = place.stream();
    const float scale = static_cast<float>(place.scale * std::numbers::log2e);
    const float factor = 1 / (1 - static_cast<float>(place.dropout));
    load_tile<Tiles::rows>(block, place, head, of_keys ? k : q, place.stride, first, tiles.own);
    load_tile<Tiles::rows>(block, place, head, of_keys ? v : dy,
                           of_keys ? place.stride : place.columns, first, tiles.own_values);
    if constexpr (!of_keys)
      load_queries<Tiles::rows>(block, place, head, logsumexp, products, first, tiles.queries);
    WarpSums<columns / 8> sums[1] = {};
    [[maybe_unused]] WarpSums<columns / 8> value_sums[1] = {};
    for (std::int64_t other = 0; other < head.length; other += Tiles::others) {
      block.sync();
      load_tile<Tiles::others>(block, place, head, of_keys ? q : k, place.stride, other,
                               tiles.other);
      load_tile<Tiles::others>(block, place, head, of_keys ? dy : v,
                               of_keys ? place.columns : place.stride, other, tiles.other_values);
      if constexpr (of_keys)
        load_queries<Tiles::others>(block, place, head, logsumexp, products, other, tiles.queries);
      block.sync();
      if (first + row >= head.length) continue;
      const int count = rows_present(head.length - other, Tiles::others);
      WarpSums<n> scores[1] = {}, from_values[1] = {};
      multiply_rows(block, tiles.own, row, tiles.other, scores);
      multiply_rows(block, tiles.own_values, row, tiles.other_values, from_values);
      if (!of_keys && count < Tiles::others) hide_columns(block, count, scores[0]);
      auto kept = ~0u;
      if (place.threshold > 0)
        kept = kept_by_dropout<of_keys>(block, place, random, tiles.queries + (of_keys ? 0 : row),
                                        of_keys ? first + row : other, count);
      unrolled<4 * n>([&](auto at) {
        constexpr int j = at / 4, e = at % 4;
        const auto& query = tiles.queries[of_keys ? 8 * j + 2 * t + e % 2 : row + g + e / 2 * 8];
        const float probability = power_of_two(scores[0][j][e] * scale - query.logsumexp);
        const bool keeps = (kept >> at & 1) != 0;
        const float from_value = keeps ? factor * from_values[0][j][e] : 0.0f;
        from_values[0][j][e] = probability * (from_value - query.product);
        scores[0][j][e] = keeps ? probability : 0.0f;
      });
      if constexpr (of_keys) multiply_sums(block, scores, tiles.other_values, column, value_sums);
      multiply_sums(block, from_values, tiles.other, column, sums);
    }
    block.sync();
    if (first + row < head.length) {
      const auto whole = static_cast<float>(place.scale);
      store_sums(block, sums[0], whole, whole, tiles.own, row, column);
      if constexpr (of_keys)
        store_sums(block, value_sums[0], factor, factor, tiles.own_values, row, column);
    }
    block.sync();
  }
};

/// Whether tensor cores can do it: heads of whole packs, all of them aligned.
template <class T, class... Pointer>
[[nodiscard]] bool flash_fits(const AttentionPlace& place, const Pointer*... pointers) {
  return is_16_bit<T> && place.size % pack_size<T> == 0 &&
         packs_fit<pack_size<T>>(place.stride, pointers...);
}
/// Calls body(integral_constant<int, width>) with the narrowest width of tiles that a head fits into.
template <class Body>
void with_head_width(int size, const Body& body) {
  if (size <= 64) return body(std::integral_constant<int, 64>());
  if (size <= 128) return body(std::integral_constant<int, 128>());
  body(std::integral_constant<int, 256>());
}
/// One block per sample, head, row group and part of the columns. Sets the kernel's groups.
template <class Kernel, class Dev>
void launch_flash(Dev& dev, std::int64_t samples, Kernel kernel) {
  using Tiles = typename Kernel::Tiles;
  const auto rows = std::clamp<std::int64_t>(kernel.place.max_length, 1, kernel.place.rows);
  kernel.groups = (rows + Tiles::rows - 1) / Tiles::rows;
  launch(dev,
         {samples * kernel.place.heads * kernel.groups * Kernel::parts, Tiles::threads,
          Tiles::shared_bytes},
         kernel);
}

}  // namespace dhp::detail::cuda
