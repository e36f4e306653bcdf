#pragma once

#include <dhp/cuda/column_reduce.hpp>
#include <dhp/ops/reduce.hpp>

namespace dhp::detail::cuda {

/// Returns a thread's part of the sum of f over x, in double: packs from, from + step, ..., then single elements.
template <int width, class T, class F>
[[nodiscard]] constexpr double share_of_sum(const T* x, std::int64_t count, std::int64_t from,
                                            std::int64_t step, F f) {
  constexpr int together = 4;  // loads in flight
  const auto of_pack = [&](const Pack<T, width>& in) {
    double sum = 0;
    for (int at = 0; at < width; ++at) sum += f(static_cast<double>(in.at[at]));
    return sum;
  };
  const std::int64_t packs = count / width;
  double total = 0;
  auto pack = from;
  for (; pack + (together - 1) * step < packs; pack += together * step) {
    Pack<T, width> in[together];
    for (int at = 0; at < together; ++at) in[at] = load<width>(x + (pack + at * step) * width);
    for (int at = 0; at < together; ++at) total += of_pack(in[at]);
  }
  for (; pack < packs; pack += step) total += of_pack(load<width>(x + pack * width));
  for (auto at = packs * width + from; at < count; at += step)
    total += f(static_cast<double>(x[at]));
  return total;
}

/// Sets parts[block] to the sum of f over the block's part of x, in double.
template <int width, class T, class F>
struct SumElementParts {
  F f;
  std::int64_t count;
  const T* x;
  double* parts;

  constexpr void operator()(auto& block) const {
    double total = share_of_sum<width>(x, count, grid_thread(block), grid_threads(block), f);
    total = block_reduce(block, total, block.template shared<double>());
    if (block.thread() == 0) parts[block.index()] = total;
  }
};

/// Sets out to the sum of parts, in one block; if `adds`, adds the sum to out.
template <class T>
struct SumOfParts {
  std::int64_t count;
  const T* parts;
  bool adds;
  T* out;

  constexpr void operator()(auto& block) const {
    T total = 0;
    for (std::int64_t at = block.thread(); at < count; at += block.threads()) total += parts[at];
    total = block_reduce(block, total, block.template shared<T>());
    if (block.thread() == 0) *out = adds ? *out + total : total;
  }
};

/// Returns a grid for kernels that end with block_reduce, after which one block adds the parts of all blocks.
[[nodiscard]] inline Grid sum_grid(std::int64_t blocks) {
  return {std::clamp<std::int64_t>(blocks, 1, max_sum_parts), 256, 8 * block_reduce_scratch};
}

}  // namespace dhp::detail::cuda

namespace dhp::detail {

template <KernelDevice Dev>
void column_sums_on(Dev& dev, ConstView<Dev> x, View<Dev> sums, double beta) {
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const cuda::ColumnTerms<T> terms{x.data(), x.columns()};
    cuda::reduce_columns<T>(dev, x.rows(), sums.count(), terms,
                            cuda::AddColumn<A>{sums.data(), beta}, terms.x, terms.x + terms.stride);
  });
}
/// There are few parts, so that the block that adds them has little work.
template <KernelDevice Dev, class Rule>
void sum_on(Dev& dev, ConstView<Dev> x, const Rule& rule, View<Dev> out) {
  visit_floating(x.dtype(), [&]<class T>(TypeTag<T>) {
    const T* const from = x.data();
    constexpr int share = 4 * cuda::pack_size<T> * 256;  // smallest share of a block
    const auto grid = cuda::sum_grid((x.count() + share - 1) / share);
    Tensor<Dev> scratch(dev, DType::f64, {grid.blocks});
    double* const parts = scratch.mut().data();
    const auto run = [&]<int width>(std::integral_constant<int, width>) {
      launch(dev, grid, cuda::SumElementParts<width, T, Rule>{rule, x.count(), from, parts});
    };
    cuda::with_width<cuda::pack_size<T>, 1>(0, run, from);
    launch(dev, cuda::sum_grid(1), cuda::SumOfParts<double>{grid.blocks, parts, false, out.data()});
  });
}

}  // namespace dhp::detail
