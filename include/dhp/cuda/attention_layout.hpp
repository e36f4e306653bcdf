// Converts dhp's ragged samples, R rows in all, to cuDNN's layout: offsets in elements, surplus samples of length 0,
// and logsumexp as [samples, heads, length, 1] instead of [heads, R].
#pragma once

#include <dhp/core/rng.hpp>
#include <dhp/cuda/block.hpp>
#include <dhp/cuda/rows.hpp>
#include <dhp/ops/attention.hpp>
#include <dhp/tensor/tensor.hpp>

namespace dhp::detail::cuda {

/// Returns the sample n whose rows [offsets[n], offsets[n + 1]) contain `row`.
[[nodiscard]] constexpr std::int64_t sample_of(std::int64_t row, const std::int32_t* offsets,
                                               std::int64_t samples) {
  std::int64_t low = 0, high = samples - 1;
  while (low < high) {
    const auto middle = (low + high) / 2;
    if (offsets[middle + 1] > row) high = middle;
    else low = middle + 1;
  }
  return low;
}

/// Seeds cuDNN's generator. The seed depends on the random stream (layer and step), on the micro-batch's first row and
/// on the rank's first head.
struct AttentionSeed {
  RandomStream random{};
  const std::int64_t* row_numbers = nullptr;
  int first_head = 0, total_heads = 1;
  std::int64_t* seed = nullptr;  ///< seed[0] is the seed, seed[2] the offset; null: no dropout

  constexpr void write() const {
    const auto words =
        random.block(static_cast<std::uint64_t>(row_numbers[0] * total_heads + first_head));
    seed[0] = static_cast<std::int64_t>(std::uint64_t{words[0]} << 31 ^ words[1]);
    seed[2] = 0;
  }
};

/// Writes element_offsets[n] = offsets[n] * columns, wide_offsets[n] = offsets[n] * stride, key_offsets[n] = offsets[n]
/// * key_stride and lengths_out[n] = lengths[n]. The surplus samples of the graph get length 0.
struct DescribeSamples {
  std::int64_t samples, graph_samples, columns, stride, key_stride;
  const std::int32_t *offsets, *lengths;
  std::int64_t *element_offsets, *wide_offsets, *key_offsets;
  std::int32_t* lengths_out;
  AttentionSeed seed{};

  constexpr void operator()(auto& block) const {
    if (seed.seed != nullptr && grid_thread(block) == 0) seed.write();
    for (auto n = grid_thread(block); n <= graph_samples; n += grid_threads(block)) {
      const std::int64_t row = offsets[n < samples ? n : samples];
      element_offsets[n] = row * columns;
      wide_offsets[n] = row * stride;
      key_offsets[n] = row * key_stride;
      if (n < graph_samples) lengths_out[n] = n < samples ? lengths[n] : 0;
    }
  }
};

/// Sets ragged[h, r] = padded[n, h, i], where r is row i of sample n; 0 in padding.
struct StatisticsFromCudnn {
  std::int64_t rows, heads, samples, length;
  const std::int32_t *offsets, *lengths;
  const float* padded;
  float* ragged;

  constexpr void operator()(auto& block) const {
    for (auto at = grid_thread(block); at < heads * rows; at += grid_threads(block)) {
      const auto head = at / rows;
      const auto row = at - head * rows;
      const auto n = sample_of(row, offsets, samples);
      const auto i = row - offsets[n];
      const bool token = i >= 0 && i < lengths[n] && i < length;
      ragged[at] = token ? padded[(n * heads + head) * length + i] : 0.0f;
    }
  }
};

/// The inverse of StatisticsFromCudnn; writes 0 beyond each sample's length.
struct StatisticsForCudnn {
  std::int64_t rows, heads, samples, graph_samples, length;
  const std::int32_t *offsets, *lengths;
  const float* ragged;
  float* padded;

  constexpr void operator()(auto& block) const {
    const auto count = graph_samples * heads * length;
    for (auto at = grid_thread(block); at < count; at += grid_threads(block)) {
      const auto i = at % length;
      const auto head = at / length % heads;
      const auto n = at / length / heads;
      const bool token = n < samples && i < lengths[n];
      padded[at] = token ? ragged[head * rows + offsets[n] + i] : 0.0f;
    }
  }
};

/// Sets x[r] = 0 for the padding rows r of each x; one warp works on a row.
template <class T>
struct ClearPadding {
  static constexpr int most = 3;
  std::int64_t rows, columns, stride, samples;
  const std::int32_t *offsets, *lengths;
  int count;
  T* x[most];

  constexpr void operator()(auto& block) const {
    const auto warps = grid_threads(block) / warp_size;
    const auto lane = block.thread() % warp_size;
    for (auto row = grid_thread(block) / warp_size; row < rows; row += warps) {
      const auto n = sample_of(row, offsets, samples);
      if (row - offsets[n] < lengths[n]) continue;
      for (int which = 0; which < count; ++which)
        for (auto column = std::int64_t{lane}; column < columns; column += warp_size)
          x[which][row * stride + column] = T(0.0f);
    }
  }
};

/// Zeroes the padding rows of at most three views of one shape, whose rows are `stride` elements apart.
template <KernelDevice Dev>
void clear_padding(Dev& dev, const Sequences<Dev>& sequences,
                   std::initializer_list<View<Dev>> views, std::int64_t stride) {
  const auto& x = *views.begin();
  if (x.count() == 0) return;
  visit_floating(x.dtype(), [&]<class T>(TypeTag<T>) {
    ClearPadding<T> kernel{x.rows(),
                           x.columns(),
                           stride,
                           sequences.lengths.count(),
                           sequences.offsets.data(),
                           sequences.lengths.data(),
                           0,
                           {}};
    for (const auto& view : views) kernel.x[kernel.count++] = view.template data<T>();
    launch(dev, grid_for(dev, x.rows() * warp_size), kernel);
  });
}

/// Calls backward(q, k, v, dq, dk, dv) on dense copies of views with this row stride, then copies the gradients back.
template <KernelDevice Dev, class Backward>
void on_dense_copies(Dev& dev, const ConstView<Dev> (&in)[3], const View<Dev> (&out)[3],
                     std::int64_t stride, const Backward& backward) {
  const auto wide = [&](auto view) {
    return decltype(view)(view.bytes(), view.dtype(), {view.rows(), stride});
  };
  Tensor<Dev> x[3], dx[3];
  for (int at = 0; at < 3; ++at) {
    x[at] = Tensor<Dev>(dev, in[at].dtype(), in[at].shape());
    dx[at] = Tensor<Dev>(dev, in[at].dtype(), in[at].shape());
    copy_columns_on(dev, wide(in[at]), 0, x[at].mut(), 0, in[at].columns());
  }
  backward(x[0].view(), x[1].view(), x[2].view(), dx[0].mut(), dx[1].mut(), dx[2].mut());
  for (int at = 0; at < 3; ++at)
    copy_columns_on(dev, dx[at].view(), 0, wide(out[at]), 0, in[at].columns());
}

}  // namespace dhp::detail::cuda
