// dhp's own attention in bf16 and fp16, on tensor cores (Dao 2023, "FlashAttention-2"). A block keeps some rows of a
// head and reads the other rows in tiles: for y and dq it keeps queries, for dk and dv it keeps keys. Scores and sums
// are in fp32 registers; probabilities are rounded for the product with values. Sums have a fixed order.
#pragma once

#include <dhp/cuda/attention_place.hpp>
#include <dhp/cuda/warp_product.hpp>

#include <limits>
#include <numbers>

namespace dhp::detail::cuda {

inline constexpr int flash_threads = 4 * warp_size;          // threads of a block
inline constexpr int flash_pack = pack_size<std::uint16_t>;  // elements of a pack
/// Returns the kernel's min_blocks for heads of this width. For 64 columns, three blocks fit a multiprocessor's
/// registers almost without spills; on an H200 both passes then take 5 to 10 % less time.
[[nodiscard]] constexpr int flash_blocks(int width) { return width == 64 ? 3 : 0; }

/// A query's data in shared memory.
struct FlashQuery {
  std::uint64_t number;      ///< random index of the query's first probability
  float logsumexp, product;  ///< logsumexp is to base 2 in the gradients; product is dy . y
};

/// The tiles of a block. width: columns of a head, padded with zeros. row_tiles: tiles of 16 rows that a warp keeps.
/// kept: matrices whose rows a block keeps, 1 (own) or 2 (own and own_values).
template <class T, int width, int row_tiles, int kept>
struct FlashTiles {
  using Tile = MatrixTile<T, width>;
  static constexpr int rows = flash_threads / warp_size * row_tiles * 16;
  static constexpr int others = 4096 / width;  ///< rows of the other operand in one tile
  static constexpr std::size_t shared_bytes =
      (kept * rows + 2 * others) * Tile::stride * sizeof(T) +
      std::max(rows, others) * sizeof(FlashQuery);

  Tile own, own_values, other, other_values;
  FlashQuery* queries;

  explicit constexpr FlashTiles(auto& block)
      : own{block.template shared<T>()},
        own_values{own.row((kept - 1) * rows)},
        other{own.row(kept * rows)},
        other_values{other.row(others)},
        queries(reinterpret_cast<FlashQuery*>(other_values.row(others))) {}
};

/// Calls body(index, row, column) for each pack in a thread's share of a tile; index is a constant.
template <int rows, int columns, class B, class Body>
constexpr void each_pack(const B& block, const Body& body) {
  constexpr int packs = columns / flash_pack;
  unrolled<rows * packs / flash_threads>([&](auto index) {
    const int at = block.thread() + index * flash_threads;
    body(index, at / packs, at % packs * flash_pack);
  });
}
template <int rows, int width>
struct FlashShare {
  WarpWords at[rows * width / flash_pack / flash_threads];

  template <class B, class T>
  constexpr void store_to(const B& block, const MatrixTile<T, width>& tile) const {
    each_pack<rows, width>(block, [&](auto index, int row, int column) {
      store_words(tile.row(row) + column, at[index]);
    });
  }
};

/// A thread's view of one head: loads, stores and dropout.
template <class B>
struct FlashHead {
  B& block;
  const AttentionPlace& place;
  AttentionPlace::Head head;
  RandomStream random;

  constexpr FlashHead(B& in, const AttentionPlace& at, std::int64_t index, bool of_keys)
      : block(in), place(at), head(at.head_of(index, of_keys)), random(at.random.loaded()) {}
  /// A view of another head of the same sample.
  constexpr FlashHead(const FlashHead& from, std::int64_t number) : FlashHead(from) {
    head.head = number;
  }

  /// Returns this thread's share of rows from `first` on; 0 beyond the head's length and columns.
  template <int rows, int width, class T>
  [[nodiscard]] constexpr FlashShare<rows, width> read(const T* from, std::int64_t row_stride,
                                                       int first) const {
    const int count = rows_present(head.length - first, rows);
    const T* const begin = from + place.at(head, first, row_stride);
    FlashShare<rows, width> share;
    each_pack<rows, width>(block, [&](auto index, int row, int column) {
      share.at[index] = row < count && column < place.size
                            ? load_words(begin + row * row_stride + column)
                            : WarpWords{};
    });
    return share;
  }
  /// Stores `columns` columns of the rows from `first` on; writes 0 in padding.
  template <int rows, int columns, class T, int width>
  constexpr void write(const MatrixTile<T, width>& from, int first, int first_column, T* to,
                       std::int64_t row_stride) const {
    each_pack<rows, columns>(block, [&](auto, int row, int column) {
      column += first_column;
      if (first + row >= head.rows || column >= place.size) return;
      store_words(to + place.at(head, first + row, row_stride) + column,
                  first + row < head.length ? load_words(from.row(row) + column) : WarpWords{});
    });
  }
  /// Loads `count` queries; those beyond the length get probabilities of 0. logsumexp and products: null in forward.
  template <int count>
  constexpr void load_queries(const float* logsumexp, const float* products, int first,
                              FlashQuery* to) const {
    static_assert(count <= flash_threads);
    if (block.thread() >= count) return;
    FlashQuery query{0, std::numeric_limits<float>::infinity(), 0};
    if (const auto row = first + block.thread(); row < head.length) {
      const auto at = head.head * place.rows + head.first_row + row;
      query.number = place.first_number(head, row);
      if (logsumexp != nullptr) {
        query.logsumexp = logsumexp[at] * std::numbers::log2e_v<float>;
        query.product = products[at];
      }
    }
    to[block.thread()] = query;
  }
  /// Returns eight bits, one for each probability in the Philox block of `number`: 1 if dropout keeps it.
  [[nodiscard]] constexpr std::uint32_t draw(std::uint64_t number) const {
    const auto words = random.block(number / 8);
    std::uint32_t bits = 0;
    unrolled<8>([&](auto at) {
      bits |= (RandomStream::short_bits(words, at) >= place.threshold ? 1u : 0u) << at;
    });
    return bits;
  }
  /// One step of a transposition of bits among lanes. Two lanes whose numbers differ by `lanes` exchange bits: the
  /// lower lane gives its bits at lower << shift and gets the other lane's bits at `lower`.
  [[nodiscard]] constexpr std::uint32_t swap_bits(std::uint32_t bits, int lanes, int shift,
                                                  std::uint32_t lower) const {
    const auto others = block.shuffle_xor(bits, lanes);
    return (block.thread() & lanes) == 0 ? (bits & lower) | (others & lower) << shift
                                         : (bits & ~lower) | (others & ~lower) >> shift;
  }
  /// Returns a bit for each of a lane's sums: bit 4 j + e is 1 if dropout keeps number e of sums[j]. Rows are queries
  /// and columns keys; with of_keys, the reverse. queries, key: the first query and the first key. If max_length is a
  /// multiple of 8, a lane draws eight keys with one Philox block, and lanes exchange bits. Bits of columns from
  /// `count` on are undefined.
  template <bool of_keys>
  [[nodiscard]] constexpr std::uint32_t kept(const FlashQuery* queries, int key, int count) const {
    const int g = block.thread() % warp_size / 4, t = block.thread() % 4;
    const auto number_of = [&](int query, int offset) {
      return queries[query].number + static_cast<std::uint64_t>(key + offset);
    };
    std::uint32_t kept = 0;
    if (place.max_length % 8 != 0) {
      for (int j = 0; 8 * j < count; ++j)
        for (int e = 0; e < 4; ++e) {
          const int row = g + e / 2 * 8, column = 8 * j + 2 * t + e % 2;
          const auto number = number_of(of_keys ? column : row, of_keys ? row : column);
          kept |= (draw(number) >> number % 8 & 1) << (4 * j + e);
        }
      return kept;
    }
    for (int j = 0; 8 * j < count; j += 2) {
      // With of_keys, lane g draws number g % 4 of sums[j + g / 4]; else lane t draws half t % 2 of sums[j + t / 2].
      const auto number = of_keys ? number_of(8 * (j + g / 4) + 2 * t + g % 2, g / 2 % 2 * 8)
                                  : number_of(g + t % 2 * 8, 8 * (j + t / 2));
      kept |= draw(number) << 4 * j;
    }
    if constexpr (of_keys) {  // eight lanes transpose 8 x 8 bits
      kept = swap_bits(kept, 4, 1, 0x55555555u);
      kept = swap_bits(kept, 8, 2, 0x33333333u);
      return swap_bits(kept, 16, 4, 0x0f0f0f0fu);
    } else {  // four lanes transpose 4 x 4 pairs of bits
      kept = swap_bits(kept, 1, 2, 0x33333333u);
      return swap_bits(kept, 2, 4, 0x0f0f0f0fu);
    }
  }
};

/// Sets the scores of columns from `count` on to minus infinity, so that their probability is 0.
template <class B, int n>
constexpr void hide_columns(const B& block, int count, WarpSums<n>& scores) {
  const int column = block.thread() % 4 * 2;
  unrolled<n>([&](auto j) {
    unrolled<4>([&](auto e) {
      if (8 * j + column + e % 2 >= count) scores[j][e] = -std::numeric_limits<float>::infinity();
    });
  });
}

/// Sets the scores of keys after their query to minus infinity. Rows are queries, or keys with of_keys. diagonal: the
/// position of the first row minus that of the first column.
template <bool of_keys, class B, int n>
constexpr void hide_later_keys(const B& block, int diagonal, WarpSums<n>& scores) {
  const int row = diagonal + block.thread() % warp_size / 4, column = block.thread() % 4 * 2;
  unrolled<n>([&](auto j) {
    unrolled<4>([&](auto e) {
      const int at = 8 * j + column + e % 2, diagonal_at = row + e / 2 * 8;
      if (of_keys ? at < diagonal_at : at > diagonal_at)
        scores[j][e] = -std::numeric_limits<float>::infinity();
    });
  });
}

template <class T, int width_>
struct FlashAttentionForward {
  static constexpr bool of_keys = false;
  static constexpr int width = width_, row_tiles = width <= 128 ? 2 : 1, parts = 1;
  using Tiles = FlashTiles<T, width, row_tiles, 1>;
  static constexpr int max_threads = flash_threads, min_blocks = flash_blocks(width);
  AttentionPlace place;
  std::int64_t groups;  ///< groups of rows in a head
  const T *q, *k, *v;
  T* y;
  float* logsumexp;

  template <class B>
  constexpr void operator()(B& block) const {
    const FlashHead<B> here(block, place, block.index() / groups, false);
    const auto& head = here.head;
    auto first = static_cast<int>(block.index() % groups) * Tiles::rows;
    const Tiles tiles(block);
    if (first < head.length) attend(here, first, tiles);
    for (; first < head.rows; first += static_cast<int>(groups) * Tiles::rows) {
      here.template write<Tiles::rows, width>(tiles.own, first, 0, y, place.columns);
      const auto row = first + block.thread();
      if (block.thread() < Tiles::rows && row < head.rows)
        logsumexp[head.head * place.rows + head.first_row + row] =
            row < head.length ? tiles.queries[block.thread()].logsumexp : 0.0f;
    }
  }

 private:
  template <class B>
  constexpr void attend(const FlashHead<B>& here, int first, const Tiles& tiles) const {
    constexpr int n = Tiles::others / 8;
    auto& block = here.block;
    const auto length = static_cast<int>(here.head.length);
    const int row = block.thread() / warp_size * row_tiles * 16;  // first row of this warp
    const float scale = static_cast<float>(place.scale * std::numbers::log2e);
    here.template read<Tiles::rows, width>(q, place.stride, first).store_to(block, tiles.own);
    here.template load_queries<Tiles::rows>(nullptr, nullptr, first, tiles.queries);
    float most[row_tiles][2], sum[row_tiles][2] = {};
    for (auto& both : most) both[0] = both[1] = -std::numeric_limits<float>::infinity();
    WarpSums<width / 8> mixed[row_tiles] = {};
    const FlashHead<B> shared(here, here.head.head / place.sharing);
    const auto seen = static_cast<int>(place.seen(here.head, first + Tiles::rows));
    for (int key = 0; key < seen; key += Tiles::others) {
      const auto keys = shared.template read<Tiles::others, width>(k, place.key_stride, key);
      const auto values = shared.template read<Tiles::others, width>(v, place.key_stride, key);
      block.sync();
      keys.store_to(block, tiles.other);
      values.store_to(block, tiles.other_values);
      block.sync();
      if (first + row >= length || !place.sees(first + row + row_tiles * 16 - 1, key)) continue;
      const int count = rows_present(length - key, Tiles::others);
      WarpSums<n> scores[row_tiles] = {};
      multiply_rows(block, tiles.own, row, tiles.other, scores);
      unrolled<row_tiles>([&](auto i) {
        if (count < Tiles::others) hide_columns(block, count, scores[i]);
        const int diagonal = first + row + 16 * i - key;
        if (!place.sees(diagonal, Tiles::others - 1))
          hide_later_keys<false>(block, diagonal, scores[i]);
        unrolled<2>(
            [&](auto half) { raise(block, scale, scores[i], most[i], sum[i], mixed[i], half); });
        if (place.threshold == 0) return;
        const auto kept = here.template kept<false>(tiles.queries + row + 16 * i, key, count);
        unrolled<4 * n>([&](auto at) {
          if ((kept >> at & 1) == 0) scores[i][at / 4][at % 4] = 0;
        });
      });
      multiply_sums(block, scores, tiles.other_values, 0, mixed);
    }
    block.sync();
    if (first + row < length)
      unrolled<row_tiles>([&](auto i) {
        float factor[2];
        unrolled<2>([&](auto half) {
          float total = sum[i][half] + block.shuffle_xor(sum[i][half], 1);
          total += block.shuffle_xor(total, 2);
          factor[half] = 1 / (1 - static_cast<float>(place.dropout)) / total;
          if (block.thread() % 4 == 0)
            tiles.queries[row + 16 * i + 8 * half + block.thread() % warp_size / 4].logsumexp =
                most[i][half] * static_cast<float>(place.scale) + std::log(total);
        });
        store_sums(block, mixed[i], factor[0], factor[1], tiles.own, row + 16 * i, 0);
      });
    block.sync();
  }

  /// Turns the scores of one of a lane's two rows into powers relative to the highest score so far. Rescales the
  /// earlier sums, which are relative to the previous highest score.
  template <class B, int n, class Half>
  static constexpr void raise(B& block, float scale, WarpSums<n>& scores, float (&most)[2],
                              float (&sum)[2], WarpSums<width / 8>& mixed, Half half) {
    const auto each = [](auto count, const auto& body) {
      unrolled<2 * count>([&](auto at) { body(at / 2, 2 * Half::value + at % 2); });
    };
    float highest = most[half], powers = 0;
    each(std::integral_constant<int, n>(),
         [&](int j, int e) { highest = std::fmax(highest, scores[j][e]); });
    highest = std::fmax(highest, block.shuffle_xor(highest, 1));
    highest = std::fmax(highest, block.shuffle_xor(highest, 2));
    const float kept = power_of_two((most[half] - highest) * scale);  // 0 for the first tile
    each(std::integral_constant<int, n>(), [&](int j, int e) {
      scores[j][e] = power_of_two(scores[j][e] * scale - highest * scale);
      powers += scores[j][e];
    });
    each(std::integral_constant<int, width / 8>(), [&](int j, int e) { mixed[j][e] *= kept; });
    most[half] = highest;
    sum[half] = sum[half] * kept + powers;
  }
};

/// Returns whether tensor cores can run this attention: a head must consist of whole, aligned packs.
template <class T, class... Pointer>
[[nodiscard]] bool flash_fits(const AttentionPlace& place, const Pointer*... pointers) {
  return is_16_bit<T> && place.size % flash_pack == 0 &&
         packs_fit<flash_pack>(place.stride, pointers...) && place.key_stride % flash_pack == 0;
}
/// Calls body(integral_constant<int, width>) with the narrowest width of tiles that holds a head.
void with_head_width(int size, const auto& body) {
  if (size <= 64) return body(std::integral_constant<int, 64>());
  if (size <= 128) return body(std::integral_constant<int, 128>());
  body(std::integral_constant<int, 256>());
}
/// Launches one block per sample, head, row group and part of the columns. Sets the kernel's groups.
template <class Kernel, class Dev>
void launch_flash(Dev& dev, std::int64_t samples, Kernel kernel) {
  using Tiles = typename Kernel::Tiles;
  const auto rows = std::clamp<std::int64_t>(kernel.place.max_length, 1, kernel.place.rows);
  kernel.groups = (rows + Tiles::rows - 1) / Tiles::rows;
  const auto heads = kernel.place.heads / (Kernel::of_keys ? kernel.place.sharing : 1);
  launch(dev, {samples * heads * kernel.groups * Kernel::parts, flash_threads, Tiles::shared_bytes},
         kernel);
}

}  // namespace dhp::detail::cuda
