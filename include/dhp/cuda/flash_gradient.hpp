// The gradients of dhp's own attention on tensor cores.
#pragma once

#include <dhp/cuda/flash_attention.hpp>

namespace dhp::detail::cuda {

/// Computes dq, or dk and dv with of_keys, like AttentionGradient. A block has at most 128 columns of dk and dv,
/// because two gradients need twice the registers for sums.
template <class T, int width_, bool of_keys_>
struct FlashAttentionGradient {
  static constexpr bool of_keys = of_keys_;
  static constexpr int width = width_, columns = of_keys ? std::min(width, 128) : width;
  static constexpr int parts = width / columns;
  using Tiles = FlashTiles<T, width, 1, 2>;
  using Sums = WarpSums<columns / 8>;
  static constexpr int max_threads = flash_threads, min_blocks = flash_blocks(width);
  AttentionPlace place;
  std::int64_t groups;
  const T *dy, *q, *k, *v;
  const float *logsumexp, *products;
  T *dx, *dv;  ///< dx is dq, or dk

  template <class B>
  constexpr void operator()(B& block) const {
    const FlashHead<B> here(block, place, block.index() / parts / groups, of_keys);
    auto first = static_cast<int>(block.index() / parts % groups) * Tiles::rows;
    const auto column = static_cast<int>(block.index() % parts) * columns;
    const Tiles tiles(block);
    if (first < here.head.length) attend(here, first, column, tiles);
    for (; first < here.head.rows; first += static_cast<int>(groups) * Tiles::rows) {
      here.template write<Tiles::rows, columns>(tiles.own, first, column, dx,
                                                of_keys ? place.key_stride : place.stride);
      if constexpr (of_keys)
        here.template write<Tiles::rows, columns>(tiles.own_values, first, column, dv,
                                                  place.key_stride);
    }
  }

 private:
  template <class B>
  constexpr void attend(const FlashHead<B>& here, int first, int column, const Tiles& tiles) const {
    auto& block = here.block;
    const auto length = static_cast<int>(here.head.length);
    const int row = block.thread() / warp_size * 16;  // first row of this warp
    const float factor = 1 / (1 - static_cast<float>(place.dropout));
    here.template read<Tiles::rows, width>(of_keys ? k : q,
                                           of_keys ? place.key_stride : place.stride, first)
        .store_to(block, tiles.own);
    here.template read<Tiles::rows, width>(of_keys ? v : dy,
                                           of_keys ? place.key_stride : place.columns, first)
        .store_to(block, tiles.own_values);
    if constexpr (!of_keys)
      here.template load_queries<Tiles::rows>(logsumexp, products, first, tiles.queries);
    Sums sums[1] = {}, value_sums[1] = {};
    if constexpr (of_keys) {
      const auto from = static_cast<int>(place.first_query(first, Tiles::others));
      const auto head = here.head.head * place.sharing;
      for (int which = 0; which < place.sharing; ++which)
        add(FlashHead<B>(here, head + which), first, row, from, length, column, factor, tiles, sums,
            value_sums);
    } else {
      const auto seen = static_cast<int>(place.seen(here.head, first + Tiles::rows));
      add(FlashHead<B>(here, here.head.head / place.sharing), first, row, 0, seen, column, factor,
          tiles, sums, value_sums);
    }
    block.sync();
    if (first + row < length) {
      const auto whole = static_cast<float>(place.scale);
      store_sums(block, sums[0], whole, whole, tiles.own, row, column);
      if constexpr (of_keys)
        store_sums(block, value_sums[0], factor, factor, tiles.own_values, row, column);
    }
    block.sync();
  }

  /// Adds the products of rows [from, to) of head `there` to the sums: queries with of_keys, otherwise keys.
  template <class B>
  constexpr void add(const FlashHead<B>& there, int first, int row, int from, int to, int column,
                     float factor, const Tiles& tiles, Sums (&sums)[1],
                     [[maybe_unused]] Sums (&value_sums)[1]) const {
    constexpr int n = Tiles::others / 8;
    auto& block = there.block;
    const auto length = static_cast<int>(there.head.length);
    const int g = block.thread() % warp_size / 4, t = block.thread() % 4;
    const float scale = static_cast<float>(place.scale * std::numbers::log2e);
    for (int other = from; other < to; other += Tiles::others) {
      const auto rows = there.template read<Tiles::others, width>(
          of_keys ? q : k, of_keys ? place.stride : place.key_stride, other);
      block.sync();
      const auto values = there.template read<Tiles::others, width>(
          of_keys ? dy : v, of_keys ? place.columns : place.key_stride, other);
      rows.store_to(block, tiles.other);
      values.store_to(block, tiles.other_values);
      if constexpr (of_keys)
        there.template load_queries<Tiles::others>(logsumexp, products, other, tiles.queries);
      block.sync();
      const int diagonal = first + row - other;
      if (first + row >= length ||
          !(of_keys ? place.sees(Tiles::others - 1, diagonal) : place.sees(diagonal + 15, 0)))
        continue;
      const int count = rows_present(length - other, Tiles::others);
      WarpSums<n> scores[1] = {}, from_values[1] = {};
      multiply_rows(block, tiles.own, row, tiles.other, scores);
      multiply_rows(block, tiles.own_values, row, tiles.other_values, from_values);
      if (!of_keys && count < Tiles::others) hide_columns(block, count, scores[0]);
      if (!(of_keys ? place.sees(0, diagonal + 15) : place.sees(diagonal, Tiles::others - 1)))
        hide_later_keys<of_keys>(block, diagonal, scores[0]);
      auto kept = ~0u;
      if (place.threshold > 0)
        kept = there.template kept<of_keys>(tiles.queries + (of_keys ? 0 : row),
                                            of_keys ? first + row : other, count);
      unrolled<4 * n>([&](auto at) {
        constexpr int j = at / 4, e = at % 4;
        const auto& query = tiles.queries[of_keys ? 8 * j + 2 * t + e % 2 : row + g + e / 2 * 8];
        const float probability = power_of_two(scores[0][j][e] * scale - query.logsumexp);
        const bool keeps = (kept >> at & 1) != 0;
        const float mask = keeps ? factor : 0.0f;
        from_values[0][j][e] = probability * (mask * from_values[0][j][e] - query.product);
        scores[0][j][e] = keeps ? probability : 0.0f;
      });
      if constexpr (of_keys) multiply_sums(block, scores, tiles.other_values, column, value_sums);
      multiply_sums(block, from_values, tiles.other, column, sums);
    }
  }
};

}  // namespace dhp::detail::cuda
