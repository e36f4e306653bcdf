// Maps the blocks of dhp's attention kernels to rows of a batch and to random numbers of dropout.
#pragma once

#include <dhp/cuda/block.hpp>
#include <dhp/ops/attention.hpp>
#include <dhp/ops/dropout.hpp>

#include <cmath>

namespace dhp::detail::cuda {

/// Maps a block to its sample, head and rows. Invalid offsets and lengths are clamped.
struct AttentionPlace {
  const std::int32_t *offsets, *lengths;
  const std::int64_t* row_numbers;
  std::int64_t rows, columns, max_length;
  /// Row strides of q and dq (stride) and of k, v, dk and dv (key_stride); other rows are `columns` apart.
  std::int64_t stride, key_stride;
  int heads, first_head, total_heads, size;
  int sharing;  ///< number of query heads that share one key head
  bool causal;
  double scale, dropout;
  std::uint32_t threshold;  ///< dropout_threshold
  RandomStream random;

  struct Head {
    std::int64_t first_row, rows, length, head;
  };
  /// index: counts the heads of all samples; with of_keys, the key heads.
  constexpr Head head_of(std::int64_t index, bool of_keys = false) const {
    const int of_sample = of_keys ? heads / sharing : heads;
    const auto sample = index / of_sample;
    const std::int64_t first = offsets[sample] < 0 ? 0 : offsets[sample];
    const std::int64_t last = offsets[sample + 1] > rows ? rows : offsets[sample + 1];
    const std::int64_t own = last > first ? last - first : 0;
    std::int64_t length = lengths[sample] < 0 ? 0 : lengths[sample];
    if (length > own) length = own;
    if (length > max_length) length = max_length;
    return {first, own, length, index % of_sample};
  }
  /// Returns the key head that a query head reads.
  constexpr Head keys_of(Head head) const {
    head.head /= sharing;
    return head;
  }
  constexpr bool sees(std::int64_t query, std::int64_t key) const {
    return !causal || key <= query;
  }
  /// Returns the number of keys that queries before `query` see.
  constexpr std::int64_t seen(const Head& head, std::int64_t query) const {
    return causal && query < head.length ? query : head.length;
  }
  /// Returns the start of the first tile of queries that may see keys from `key` on.
  constexpr std::int64_t first_query(std::int64_t key, int tile) const {
    return causal ? key / tile * tile : 0;
  }
  /// Returns the offset of a head's row, if rows are row_stride apart.
  constexpr std::int64_t at(const Head& head, std::int64_t row, std::int64_t row_stride) const {
    return (head.first_row + row) * row_stride + head.head * size;
  }
  /// Returns the random index of a query's first probability.
  constexpr std::uint64_t first_number(const Head& head, std::int64_t query) const {
    const auto number = row_numbers[head.first_row + query];
    return static_cast<std::uint64_t>((number * total_heads + first_head + head.head) * max_length);
  }
  constexpr bool keeps(const Head& head, std::int64_t query, std::int64_t key) const {
    if (dropout == 0) return true;
    const auto number = first_number(head, query) + static_cast<std::uint64_t>(key);
    return random.short_bits(number) >= threshold;
  }
};

/// Returns min(wanted, left), but at least 0.
[[nodiscard]] constexpr int rows_present(std::int64_t left, int wanted) {
  return left > wanted ? wanted : left > 0 ? static_cast<int>(left) : 0;
}

/// Constants of the kernels in fallback_attention.hpp. A warp's own row is in shared memory too.
struct AttentionTile {
  static constexpr int rows = warp_size;  // rows of a tile, one for each lane
  static constexpr int warps = 8;         // rows of a block, one for each warp
  static constexpr int threads = warps * warp_size;
  static constexpr int max_per_lane = 8;  // columns of a lane; a head has at most 256
  /// Multiply-adds of a multiprocessor per cycle. Loads from shared memory are the bound: two numbers for each.
  static constexpr double products_per_cycle = warp_size / 2.0;
  /// Returns the padded row length in shared memory; an odd length avoids bank conflicts.
  static constexpr int stride(int size) { return size | 1; }
};

template <class Dev>
[[nodiscard]] int attention_head_size(ConstView<Dev> q, const AttentionOptions& options) {
  const auto size = q.columns() / options.heads;
  check(size <= AttentionTile::max_per_lane * warp_size, "attention: heads of ", size,
        " columns; on a GPU they have at most ", AttentionTile::max_per_lane * warp_size);
  return static_cast<int>(size);
}
template <class Dev>
[[nodiscard]] AttentionPlace attention_place(ConstView<Dev> q, const Sequences<Dev>& sequences,
                                             const AttentionOptions& options) {
  const auto size = attention_head_size(q, options);
  return {sequences.offsets.template data<std::int32_t>(),
          sequences.lengths.template data<std::int32_t>(),
          sequences.row_numbers.template data<std::int64_t>(),
          q.rows(),
          q.columns(),
          sequences.max_length,
          options.stride(q.columns()),
          options.stride(q.columns() / options.sharing()),
          options.heads,
          options.first_head,
          options.total_heads,
          size,
          options.sharing(),
          options.causal,
          1.0 / std::sqrt(static_cast<double>(size)),
          options.dropout,
          dropout_threshold(options.dropout),
          options.random};
}

}  // namespace dhp::detail::cuda
