// dhp's own attention. 16-bit heads of whole packs run on tensor cores (flash_attention.hpp), all others in the kernels
// here. A warp works on one query and reads tiles of keys and values through shared memory; a lane takes one row of a
// tile. For dk and dv, a warp works on one key and reads queries. Probabilities are not stored (Dao et al. 2022,
// "FlashAttention").
#pragma once

#include <dhp/cuda/attention_place.hpp>
#include <dhp/cuda/flash_gradient.hpp>
#include <dhp/tensor/tensor.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace dhp::detail::cuda {

/// Loads `wanted` rows of a head, from row `first` on, into shared memory; rows beyond the head's length are 0.
template <class A, class B, class T>
constexpr void load_rows(const B& block, const AttentionPlace& place,
                         const AttentionPlace::Head& head, const T* from, std::int64_t row_stride,
                         std::int64_t first, int wanted, A* to) {
  const int stride = AttentionTile::stride(place.size);
  const int count = rows_present(head.length - first, wanted);
  for (int at = block.thread(); at < wanted * place.size; at += block.threads()) {
    const int row = at / place.size;
    const int column = at % place.size;
    to[row * stride + column] =
        row < count ? static_cast<A>(from[place.at(head, first + row, row_stride) + column]) : A(0);
  }
}

template <class A>
[[nodiscard]] constexpr A inner_product(const A* x, const A* y, int size) {
  A sum = 0;
  for (int at = 0; at < size; ++at) sum += x[at] * y[at];
  return sum;
}

/// Calls body(first, count) for each tile of a head's rows [from, to), with the rows of a and b in shared memory.
template <class A, class B, class T, class Body>
constexpr void for_tiles(B& block, const AttentionPlace& place, const AttentionPlace::Head& head,
                         std::int64_t from, std::int64_t to, const T* a, std::int64_t stride_of_a,
                         const T* b, std::int64_t stride_of_b, A* to_a, A* to_b, const Body& body) {
  constexpr int tile = AttentionTile::rows;
  for (auto first = from; first < to; first += tile) {
    block.sync();
    load_rows(block, place, head, a, stride_of_a, first, tile, to_a);
    load_rows(block, place, head, b, stride_of_b, first, tile, to_b);
    block.sync();
    body(first, rows_present(to - first, tile));
  }
}

/// Calls body(part, column) for each column of a lane.
constexpr void for_columns(int lane, int size, const auto& body) {
  for (int part = 0; part * warp_size + lane < size; ++part) body(part, part * warp_size + lane);
}

/// Calls kernel.group(block, head, first) for each of this block's groups of `warps` rows, all of one head.
template <class Kernel, class B>
constexpr void visit_groups(const Kernel& kernel, B& block) {
  const auto head = kernel.place.head_of(block.index() / kernel.groups, Kernel::of_keys);
  const auto stride = kernel.groups * AttentionTile::warps;
  for (auto first = block.index() % kernel.groups * AttentionTile::warps; first < head.rows;
       first += stride)
    kernel.group(block, head, first);
}

/// The forward pass: a block works on `warps` queries of a head.
template <class T>
struct AttentionForward {
  static constexpr bool of_keys = false;
  using A = Accumulator<T>;
  AttentionPlace place;
  std::int64_t groups;  ///< groups of queries in a head
  const T *q, *k, *v;
  T* y;
  A* logsumexp;

  constexpr void operator()(auto& block) const { visit_groups(*this, block); }

  constexpr void group(auto& block, const AttentionPlace::Head& head,
                       std::int64_t first_query) const {
    constexpr int tile = AttentionTile::rows;
    const int warp = block.thread() / warp_size;
    const int lane = block.thread() % warp_size;
    const int size = place.size;
    const int stride = AttentionTile::stride(size);
    A* const queries = block.template shared<A>();
    A* const keys = queries + AttentionTile::warps * stride;
    A* const values = keys + tile * stride;
    A* const weights = values + tile * stride + warp * tile;  // the row for this warp's query
    const auto query = first_query + warp;
    const bool real = query < head.length;

    load_rows(block, place, head, q, place.stride, first_query, AttentionTile::warps, queries);
    A most = -std::numeric_limits<A>::infinity();
    A sum = 0;
    A mixed[AttentionTile::max_per_lane] = {};
    const A scale = static_cast<A>(place.scale);
    const auto add_tile = [&](std::int64_t first, int count) {
      const bool scores = lane < count && real && place.sees(query, first + lane);
      const A score =
          scores ? scale * inner_product(queries + warp * stride, keys + lane * stride, size)
                 : -std::numeric_limits<A>::infinity();
      const A higher = warp_reduce(block, score, Largest{});
      const A now = higher > most ? higher : most;
      const bool none = now < std::numeric_limits<A>::lowest();  // all scores so far are -inf
      const A power = scores && !none ? std::exp(score - now) : A(0);
      const A kept = none ? A(1) : std::exp(most - now);  // 0 for the first tile with a score
      sum = (real ? sum * kept : A(0)) + warp_reduce(block, power);
      most = now;
      weights[lane] = scores && place.keeps(head, query, first + lane) ? power : A(0);
      block.sync();
      for_columns(lane, size, [&](int part, int column) {
        A total = real ? mixed[part] * kept : A(0);
        for (int row = 0; row < count; ++row) total += weights[row] * values[row * stride + column];
        mixed[part] = total;
      });
    };
    if (first_query < head.length)
      for_tiles(block, place, place.keys_of(head), 0,
                place.seen(head, first_query + AttentionTile::warps), k, place.key_stride, v,
                place.key_stride, keys, values, add_tile);
    if (query >= head.rows) return;
    const A factor = real ? static_cast<A>(1.0 / (1.0 - place.dropout)) / sum : A(0);
    for_columns(lane, size, [&](int part, int column) {
      y[place.at(head, query, place.columns) + column] =
          static_cast<T>(real ? mixed[part] * factor : A(0));
    });
    if (lane == 0)
      logsumexp[head.head * place.rows + head.first_row + query] =
          real ? most + std::log(sum) : A(0);
  }
};

/// Computes products[head, row] = dy . y; `lanes` neighboring threads compute each product, in packs of n.
template <class T, int n>
struct AttentionInner {
  using A = Accumulator<T>;
  std::int64_t rows, columns;
  int heads, size, lanes;
  const T *dy, *y;
  A* products;

  constexpr void operator()(auto& block) const {
    const int lane = block.thread() % lanes;
    const auto of_warp = warp_size / lanes;
    // All lanes of a warp stay in the loop, because the shuffles need them.
    for (auto first = grid_thread(block) / warp_size * of_warp; first < heads * rows;
         first += grid_threads(block) / warp_size * of_warp) {
      const auto product = first + block.thread() % warp_size / lanes;
      const auto row = product / heads, head = product % heads;
      A sum = 0;
      for (int at = lane * n; at < size && row < rows; at += lanes * n) {
        const auto place = row * columns + head * size + at;
        const auto left = load<n>(dy + place), right = load<n>(y + place);
        for (int e = 0; e < n; ++e) sum += static_cast<A>(left.at[e]) * static_cast<A>(right.at[e]);
      }
      for (int mask = lanes / 2; mask > 0; mask /= 2) sum += block.shuffle_xor(sum, mask);
      if (lane == 0 && row < rows) products[head * rows + row] = sum;
    }
  }
};

// With probabilities p and scaled dropout mask m: dv = (p m)^T dy and ds = p (m (dy v^T) - dy . y),
// because sum_j p m (dy v^T) = dy . y for each query.

/// Computes dq: a block works on `warps` queries and loops over keys. With of_keys it computes dk and dv: a block works
/// on `warps` keys and loops over the queries of all heads that share them.
template <class T, bool of_keys_>
struct AttentionGradient {
  static constexpr bool of_keys = of_keys_;
  using A = Accumulator<T>;
  AttentionPlace place;
  std::int64_t groups;
  const T *dy, *q, *k, *v;
  const A *logsumexp, *products;
  T *dx, *dv;  ///< dx is dq, or dk

  constexpr void operator()(auto& block) const { visit_groups(*this, block); }

  constexpr void group(auto& block, const AttentionPlace::Head& head,
                       std::int64_t first_row) const {
    constexpr int tile = AttentionTile::rows;
    const int warp = block.thread() / warp_size;
    const int lane = block.thread() % warp_size;
    const int size = place.size;
    const int stride = AttentionTile::stride(size);
    // The block's own rows are of q and dy, or of k and v with of_keys. The other rows come in tiles.
    A* const own = block.template shared<A>();
    A* const own_values = own + AttentionTile::warps * stride;
    A* const others = own_values + AttentionTile::warps * stride;
    A* const other_values = others + tile * stride;
    A* const weights = other_values + tile * stride + warp * (of_keys ? 2 : 1) * tile;
    const auto mine = first_row + warp;
    const bool real = mine < head.length;
    const auto own_stride = of_keys ? place.key_stride : place.stride;
    load_rows(block, place, head, of_keys ? k : q, own_stride, first_row, AttentionTile::warps,
              own);
    load_rows(block, place, head, of_keys ? v : dy, of_keys ? place.key_stride : place.columns,
              first_row, AttentionTile::warps, own_values);
    const A scale = static_cast<A>(place.scale);
    const A kept = static_cast<A>(1.0 / (1.0 - place.dropout));
    A sums[AttentionTile::max_per_lane] = {};
    [[maybe_unused]] A value_sums[AttentionTile::max_per_lane] = {};
    auto reader = head;  // the query head
    const auto add_tile = [&](std::int64_t first, int count) {
      A weight = 0, value_weight = 0;
      const auto query = of_keys ? first + lane : mine, key = of_keys ? mine : first + lane;
      if (lane < count && real && place.sees(query, key)) {
        const auto row = reader.head * place.rows + head.first_row + query;
        const A score = scale * inner_product(own + warp * stride, others + lane * stride, size);
        const A from_value =
            inner_product(own_values + warp * stride, other_values + lane * stride, size);
        const A probability = std::exp(score - logsumexp[row]);
        const A mask = place.keeps(reader, query, key) ? kept : A(0);
        weight = probability * (mask * from_value - products[row]);
        value_weight = probability * mask;
      }
      weights[lane] = weight;
      if constexpr (of_keys) weights[tile + lane] = value_weight;
      block.sync();
      for_columns(lane, size, [&](int part, int column) {
        for (int row = 0; row < count; ++row) {
          sums[part] += weights[row] * others[row * stride + column];
          if constexpr (of_keys)
            value_sums[part] += weights[tile + row] * other_values[row * stride + column];
        }
      });
    };
    if (first_row < head.length) {
      if constexpr (of_keys) {
        for (reader.head = head.head * place.sharing; reader.head < (head.head + 1) * place.sharing;
             ++reader.head)
          for_tiles(block, place, reader, place.first_query(first_row, tile), head.length, q,
                    place.stride, dy, place.columns, others, other_values, add_tile);
      } else {
        for_tiles(block, place, place.keys_of(head), 0,
                  place.seen(head, first_row + AttentionTile::warps), k, place.key_stride, v,
                  place.key_stride, others, other_values, add_tile);
      }
    }
    if (mine >= head.rows) return;
    for_columns(lane, size, [&](int part, int column) {
      const auto to = place.at(head, mine, own_stride) + column;
      dx[to] = static_cast<T>(real ? scale * sums[part] : A(0));
      if constexpr (of_keys) dv[to] = static_cast<T>(real ? value_sums[part] : A(0));
    });
  }
};

/// Returns a grid with one block for each row group of a (key) head. Throws Error if a head exceeds shared memory.
template <class A, class Dev>
[[nodiscard]] Grid attention_grid(const Dev& dev, const AttentionPlace& place,
                                  const Sequences<Dev>& sequences, std::int64_t groups,
                                  int own_rows, bool of_keys) {
  const int weight_rows = of_keys ? 2 : 1;
  const auto elements = own_rows * AttentionTile::warps + 2 * AttentionTile::rows;
  const auto shared = elements * AttentionTile::stride(place.size) +
                      weight_rows * AttentionTile::warps * AttentionTile::rows;
  const auto heads = of_keys ? place.heads / place.sharing : place.heads;
  const Grid grid{sequences.lengths.count() * heads * groups, AttentionTile::threads,
                  as_size(shared) * sizeof(A)};
  check_shared_memory(dev, grid, "attention: heads of ", place.size, " columns, with sums in ",
                      dtype_of<A>(), ", need");
  return grid;
}
/// Returns the multiply-adds of a pass for one query-key pair. Forward computes a score and adds to y. Backward
/// computes a score and dy . v twice, and adds to dq, dk and dv.
[[nodiscard]] constexpr double fallback_attention_products(std::int64_t head_size, bool backward) {
  return static_cast<double>(head_size) * (backward ? 7 : 2);
}
/// Returns the row groups of the longest sample; blocks loop if padding adds more.
[[nodiscard]] inline std::int64_t attention_groups(const AttentionPlace& place) {
  const auto rows = std::clamp<std::int64_t>(place.max_length, 1, place.rows);
  return (rows + AttentionTile::warps - 1) / AttentionTile::warps;
}

}  // namespace dhp::detail::cuda

namespace dhp::detail {

template <KernelDevice Dev>
void attention_forward_on(Dev& dev, ConstView<Dev> q, ConstView<Dev> k, ConstView<Dev> v,
                          const Sequences<Dev>& sequences, const AttentionOptions& options,
                          View<Dev> y, View<Dev> logsumexp) {
  if (q.count() == 0) return;
  visit_floating(q.dtype(), [&]<class T>(TypeTag<T>) {
    using A = Accumulator<T>;
    const auto place = cuda::attention_place<Dev>(q, sequences, options);
    const T *const queries = q.template data<T>(), *const keys = k.template data<T>(),
                   *const values = v.template data<T>();
    T* const to = y.template data<T>();
    A* const sums = logsumexp.template data<A>();
    if constexpr (is_16_bit<T>)
      if (cuda::flash_fits<T>(place, queries, keys, values, to))
        return cuda::with_head_width(place.size, [&](auto width) {
          cuda::launch_flash(
              dev, sequences.lengths.count(),
              cuda::FlashAttentionForward<T, width>{place, 0, queries, keys, values, to, sums});
        });
    const auto groups = cuda::attention_groups(place);
    launch(dev, cuda::attention_grid<A, Dev>(dev, place, sequences, groups, 1, false),
           cuda::AttentionForward<T>{place, groups, queries, keys, values, to, sums});
  });
}

template <KernelDevice Dev>
void attention_backward_on(Dev& dev, ConstView<Dev> dy, ConstView<Dev> q, ConstView<Dev> k,
                           ConstView<Dev> v, ConstView<Dev> y, ConstView<Dev> logsumexp,
                           const Sequences<Dev>& sequences, const AttentionOptions& options,
                           View<Dev> dq, View<Dev> dk, View<Dev> dv) {
  if (q.count() == 0) return;
  visit_floating(q.dtype(), [&]<class T>(TypeTag<T>) {
    using A = Accumulator<T>;
    const auto place = cuda::attention_place<Dev>(q, sequences, options);
    const T *const gradient = dy.template data<T>(), *const queries = q.template data<T>(),
                   *const keys = k.template data<T>(), *const values = v.template data<T>();
    T *const to_q = dq.template data<T>(), *const to_k = dk.template data<T>(),
             *const to_v = dv.template data<T>();
    const A* const sums = logsumexp.template data<A>();
    Tensor<Dev> inner(dev, dtype_of<A>(), {place.heads, place.rows});
    A* const products = inner.mut().template data<A>();
    const T* const results = y.template data<T>();
    cuda::with_width<cuda::pack_size<T>, 1>(
        place.size,
        [&](auto n) {
          const auto packs = static_cast<unsigned>((place.size + n - 1) / n);
          const int lanes = std::min<int>(static_cast<int>(std::bit_ceil(packs)), cuda::warp_size);
          launch(dev, cuda::grid_for(dev, place.heads * place.rows * lanes),
                 cuda::AttentionInner<T, n>{place.rows, place.columns, place.heads, place.size,
                                            lanes, gradient, results, products});
        },
        gradient, results);
    const auto groups = cuda::attention_groups(place);
    const auto run = [&]<bool of_keys>(std::bool_constant<of_keys>, T* to, T* to_values) {
      if constexpr (is_16_bit<T>)
        if (cuda::flash_fits<T>(place, gradient, queries, keys, values, to_q, to_k, to_v))
          return cuda::with_head_width(place.size, [&](auto width) {
            cuda::launch_flash(
                dev, sequences.lengths.count(),
                cuda::FlashAttentionGradient<T, width, of_keys>{
                    place, 0, gradient, queries, keys, values, sums, products, to, to_values});
          });
      launch(dev, cuda::attention_grid<A, Dev>(dev, place, sequences, groups, 2, of_keys),
             cuda::AttentionGradient<T, of_keys>{place, groups, gradient, queries, keys, values,
                                                 sums, products, to, to_values});
    };
    run(std::false_type(), to_q, nullptr);
    run(std::true_type(), to_k, to_v);
  });
}

}  // namespace dhp::detail
