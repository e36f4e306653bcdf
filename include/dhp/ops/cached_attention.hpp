// Causal attention for rows that arrive one after another, as a decoder generates them (Shazeer 2019, section 2.4).
// Keys and values of earlier rows are in a cache [2, N, capacity, key columns]. Sample n's row at position p is stored
// at index p of sample n's part of the cache.
#pragma once

#include <dhp/ops/attention.hpp>

namespace dhp::detail {

template <Device Dev>
void check_cache(InView<Dev> cache, InView<Dev> q, InView<Dev> positions, int sharing) {
  const auto& shape = cache.shape();
  check(shape.rank() == 4 && shape[0] == 2 && shape[3] * sharing == q.columns() &&
            cache.dtype() == q.dtype(),
        "attention: a cache ", shape, " of ", cache.dtype(), " does not fit rows ", q.shape(),
        " of ", q.dtype());
  check(positions.dtype() == DType::i32 && positions.count() == q.rows(), "attention: ", q.rows(),
        " rows need as many positions of i32, got ", positions.shape(), " of ", positions.dtype());
}

/// Appends k and v [R, key columns] to the cache [2, N, capacity, key columns]. Their rows are row_stride elements
/// apart; 0 means contiguous rows. offsets i32 [N + 1]: rows of the samples. positions i32 [R]: of the rows.
template <Device Dev>
void append_to_cache(Dev& dev, InView<Dev> k, InView<Dev> v, InView<Dev> offsets,
                     InView<Dev> positions, std::int64_t row_stride, OutView<Dev> cache) {
  check_cache<Dev>(cache, k, positions, 1);
  check_like_q<Dev>("v", v, k);
  check(offsets.dtype() == DType::i32 && offsets.count() == cache.shape()[1] + 1,
        "attention: offsets ", offsets.shape(), " of ", offsets.dtype(), " do not fit a cache ",
        cache.shape());
  append_to_cache_on(dev, k, v, offsets, positions, row_stride == 0 ? k.columns() : row_stride,
                     cache);
}

/// Row n of q attends to sample n's keys in the cache [2, N, capacity, key columns], up to position positions[n], i32
/// [N]. q, y [N, heads * head size]. There is no dropout.
template <Device Dev>
void attention_step(Dev& dev, InView<Dev> q, InView<Dev> cache, InView<Dev> positions,
                    const AttentionOptions& options, OutView<Dev> y) {
  check_cache<Dev>(cache, q, positions, options.sharing());
  check_like_q<Dev>("y", y, q);
  check(q.rows() == cache.shape()[1] && options.causal && options.dropout == 0,
        "attention: ", q.rows(), " rows after a cache ", cache.shape(),
        "; causal attention without dropout has one for each sample");
  if (q.count() > 0) attention_step_on(dev, q, cache, positions, options, y);
}

}  // namespace dhp::detail
