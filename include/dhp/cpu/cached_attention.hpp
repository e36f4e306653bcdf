// Implements attention of new tokens to a key-value cache on the Cpu, with one task per sample and key head.
#pragma once

#include <dhp/cpu/column_reduce.hpp>
#include <dhp/cpu/vector_math.hpp>
#include <dhp/ops/cached_attention.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace dhp::detail {

/// Returns where the keys of a sample begin in the cache. Throws Error if the cache has no row for `position`.
inline std::int64_t cache_start(ConstView<Cpu> cache, std::int64_t sample, std::int64_t position) {
  const auto& shape = cache.shape();
  check(position >= 0 && position < shape[2], "attention: position ", position, " of sample ",
        sample, " is beyond a cache of ", shape[2], " rows");
  return sample * shape[2] * shape[3];
}

void append_to_cache_on(std::same_as<Cpu> auto&, ConstView<Cpu> k, ConstView<Cpu> v,
                        ConstView<Cpu> offsets, ConstView<Cpu> positions, std::int64_t row_stride,
                        View<Cpu> cache) {
  const auto* const starts = offsets.data<std::int32_t>();
  const auto* const at = positions.data<std::int32_t>();
  const auto element = static_cast<std::int64_t>(size_of(k.dtype()));
  const auto bytes = as_size(k.columns() * element);
  for (std::int64_t sample = 0; sample + 1 < offsets.count(); ++sample) {
    const Range rows{starts[sample], starts[sample + 1]};
    check(rows.first >= 0 && rows.last <= k.rows(), "attention: rows [", rows.first, ", ",
          rows.last, ") of sample ", sample, " do not lie in the ", k.rows(), " rows");
    for (auto row = rows.first; row < rows.last; ++row) {
      const auto at_row = cache_start(cache, sample, at[row]) + at[row] * k.columns();
      auto* const to = cache.bytes() + at_row * element;
      std::memcpy(to, k.bytes() + row * row_stride * element, bytes);
      std::memcpy(to + cache.size_bytes() / 2, v.bytes() + row * row_stride * element, bytes);
    }
  }
}

void attention_step_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> q, ConstView<Cpu> cache,
                       ConstView<Cpu> positions, const AttentionOptions& options, View<Cpu> y) {
  const auto sharing = options.sharing();
  const std::int64_t key_heads = options.heads / sharing, size = q.columns() / options.heads;
  const auto stride = options.stride(q.columns()), key_columns = cache.columns();
  visit_floating(q.dtype(), [&]<class T>(TypeTag<T>) {
    using A = Accumulator<T>;
    const A scale = static_cast<A>(1.0 / std::sqrt(static_cast<double>(size)));
    dev.for_tiles(q.rows() * key_heads, [&](std::int64_t task) {
      const auto sample = task / key_heads, first_column = task % key_heads * size;
      const auto seen = positions.data<std::int32_t>()[sample] + std::int64_t{1};
      const T* const keys = cache.data<T>() + cache_start(cache, sample, seen - 1) + first_column;
      const T* const values = keys + cache.count() / 2;
      std::vector<A> weights(as_size(seen)), mixed(as_size(size));
      for (auto at = first_column * sharing; at < (first_column + size) * sharing; at += size) {
        const T* const query = q.data<T>() + sample * stride + at;
        for (std::int64_t j = 0; j < seen; ++j)
          weights[as_size(j)] =
              scale * cpu::lane_sum<A>(size, [query, key = keys + j * key_columns](auto c) {
                return static_cast<A>(query[c]) * static_cast<A>(key[c]);
              });
        A* const row = weights.data();
        const A most = cpu::largest<A>(seen, [row](auto j) { return row[j]; });
        cpu::for_vectors(
            seen, row, [=](auto score) { return cpu::fast_exp(score - most); }, row);
        const A sum = cpu::lane_sum<A>(seen, [row](auto j) { return row[j]; });
        std::fill(mixed.begin(), mixed.end(), A(0));
        for (std::int64_t j = 0; j < seen; ++j)
          for (std::int64_t c = 0; c < size; ++c)
            mixed[as_size(c)] += row[j] * static_cast<A>(values[j * key_columns + c]);
        T* const to = y.data<T>() + sample * y.columns() + at;
        for (std::int64_t c = 0; c < size; ++c) to[c] = static_cast<T>(mixed[as_size(c)] / sum);
      }
    });
  });
}

}  // namespace dhp::detail
