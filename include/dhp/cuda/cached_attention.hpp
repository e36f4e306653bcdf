// Attention of one new row of each sample to the rows of its cache. A block works on one sample and head; each of its
// eight warps takes every eighth key, and the block joins the warps' sums (Dao et al. 2023, "Flash-Decoding").
#pragma once

#include <dhp/cuda/attention_layout.hpp>
#include <dhp/cuda/attention_place.hpp>
#include <dhp/ops/cached_attention.hpp>

#include <limits>

namespace dhp::detail::cuda {

/// Copies rows to their positions in the cache; skips rows whose position is outside the cache.
template <class T>
struct AppendToCache {
  std::int64_t rows, columns, stride, samples, capacity;
  const std::int32_t *offsets, *positions;
  const T *k, *v;
  T *keys, *values;

  constexpr void operator()(auto& block) const {
    for (auto at = grid_thread(block); at < rows * columns; at += grid_threads(block)) {
      const auto row = at / columns, column = at - row * columns;
      const std::int64_t position = positions[row];
      if (position < 0 || position >= capacity) continue;
      const auto to = (sample_of(row, offsets, samples) * capacity + position) * columns + column;
      keys[to] = k[row * stride + column];
      values[to] = v[row * stride + column];
    }
  }
};

/// Computes the attention of new rows; a row whose position is outside the cache becomes NaN.
template <class T>
struct AttentionStep {
  using A = Accumulator<T>;
  static constexpr int max_per_lane = AttentionTile::max_per_lane;
  std::int64_t stride, capacity, key_columns;
  int heads, sharing, size;
  double scale;
  const std::int32_t* positions;
  const T *q, *keys, *values;
  T* y;

  constexpr void operator()(auto& block) const {
    const auto sample = block.index() / heads, head = block.index() % heads;
    const int warp = block.thread() / warp_size, warps = block.threads() / warp_size;
    const int lane = block.thread() % warp_size;
    const std::int64_t position = positions[sample];
    const auto seen = position < 0 || position >= capacity ? 0 : position + 1;
    const auto first = sample * capacity * key_columns + head / sharing * size;
    const T* const query = q + sample * stride + head * size;
    A own[max_per_lane] = {}, mixed[max_per_lane] = {};
    for (int part = 0, column = lane; column < size; ++part, column += warp_size)
      own[part] = static_cast<A>(scale) * static_cast<A>(query[column]);
    A most = -std::numeric_limits<A>::infinity(), sum = 0;
    for (std::int64_t key = warp; key < seen; key += warps) {
      const auto row = first + key * key_columns;
      A score = 0;
      for (int part = 0, column = lane; column < size; ++part, column += warp_size)
        score += own[part] * static_cast<A>(keys[row + column]);
      score = warp_reduce(block, score);
      const A now = score > most ? score : most;
      const A kept = std::exp(most - now), power = std::exp(score - now);  // kept: 0 at first
      sum = sum * kept + power;
      for (int part = 0, column = lane; column < size; ++part, column += warp_size)
        mixed[part] = mixed[part] * kept + power * static_cast<A>(values[row + column]);
      most = now;
    }
    A* const sums = block.template shared<A>();  // for each warp: mixed values, largest score, sum
    A* const mine = sums + warp * (size + 2);
    for (int part = 0, column = lane; column < size; ++part, column += warp_size)
      mine[column] = mixed[part];
    if (lane == 0) mine[size] = most, mine[size + 1] = sum;
    block.sync();
    A highest = most;
    for (int each = 0; each < warps; ++each)
      highest = Largest{}(highest, sums[each * (size + 2) + size]);
    for (int column = block.thread(); column < size; column += block.threads()) {
      A value = 0, total = 0;
      for (int each = 0; each < warps; ++each) {
        const A* const of = sums + each * (size + 2);
        if (of[size + 1] == 0) continue;  // this warp had no key
        const A power = std::exp(of[size] - highest);
        value += of[column] * power;
        total += of[size + 1] * power;
      }
      y[(sample * heads + head) * size + column] = static_cast<T>(value / total);
    }
  }
};

}  // namespace dhp::detail::cuda

namespace dhp::detail {

template <KernelDevice Dev>
void append_to_cache_on(Dev& dev, ConstView<Dev> k, ConstView<Dev> v, ConstView<Dev> offsets,
                        ConstView<Dev> positions, std::int64_t row_stride, View<Dev> cache) {
  if (k.count() == 0) return;
  visit_floating(k.dtype(), [&]<class T>(TypeTag<T>) {
    T* const keys = cache.template data<T>();
    launch(dev, cuda::grid_for(dev, k.count()),
           cuda::AppendToCache<T>{k.rows(), k.columns(), row_stride, cache.shape()[1],
                                  cache.shape()[2], offsets.template data<std::int32_t>(),
                                  positions.template data<std::int32_t>(), k.template data<T>(),
                                  v.template data<T>(), keys, keys + cache.count() / 2});
  });
}

template <KernelDevice Dev>
void attention_step_on(Dev& dev, ConstView<Dev> q, ConstView<Dev> cache, ConstView<Dev> positions,
                       const AttentionOptions& options, View<Dev> y) {
  const auto size = cuda::attention_head_size(q, options);
  visit_floating(q.dtype(), [&]<class T>(TypeTag<T>) {
    const T* const keys = cache.template data<T>();
    cuda::Grid grid{q.rows() * options.heads};
    grid.shared_bytes =
        as_size(grid.threads / cuda::warp_size * (size + 2)) * sizeof(Accumulator<T>);
    launch(dev, grid,
           cuda::AttentionStep<T>{options.stride(q.columns()), cache.shape()[2], cache.columns(),
                                  options.heads, options.sharing(), size,
                                  1.0 / std::sqrt(static_cast<double>(size)),
                                  positions.template data<std::int32_t>(), q.template data<T>(),
                                  keys, keys + cache.count() / 2, y.template data<T>()});
  });
}

}  // namespace dhp::detail
