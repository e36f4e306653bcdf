// Attention on the Cpu: one task per sample and head of keys, in fixed blocks of queries, with the packed
// gemm. 16-bit heads are widened to float, the type of their sums.
#pragma once

#include <dhp/cpu/column_reduce.hpp>
#include <dhp/cpu/dropout.hpp>
#include <dhp/cpu/gemm.hpp>
#include <dhp/cpu/vector_math.hpp>
#include <dhp/ops/attention.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

namespace dhp::detail::cpu {

/// The rows of one head and sample in a [R, columns] tensor, or in one with longer rows.
struct Head {
  const Sequences<Cpu>& sequences;
  const AttentionOptions& options;
  std::int64_t first_row, rows, length;  ///< the last rows - length are padding
  std::int64_t head, size, columns;      ///< columns: of q
  [[nodiscard]] std::int64_t offset(std::int64_t row_stride) const {
    return first_row * row_stride + head * size;
  }
  /// Calls body(Head) for each head of q that has these keys, in order.
  template <class Body>
  void for_queries(Body body) const {
    auto at = *this;
    const auto sharing = options.sharing();
    for (at.head = head * sharing; at.head < (head + 1) * sharing; ++at.head) body(at);
  }
  /// How many keys, from the first one on, a query sees.
  [[nodiscard]] std::int64_t seen(std::int64_t query) const {
    return options.causal ? query + 1 : length;
  }
  [[nodiscard]] double scale() const { return 1.0 / std::sqrt(static_cast<double>(size)); }
};
/// Large enough to amortize the packing of the keys.
inline constexpr std::int64_t query_block = 128;

/// Calls body(Head) for all heads of k [rows, columns], in parallel.
template <class Body>
void for_heads(Cpu& dev, const Sequences<Cpu>& sequences, const AttentionOptions& options,
               ConstView<Cpu> q, Body body) {
  const auto* offsets = sequences.offsets.data<std::int32_t>();
  const auto* lengths = sequences.lengths.data<std::int32_t>();
  const auto samples = sequences.lengths.count(), rows = q.rows(), columns = q.columns();
  check(offsets[0] == 0 && offsets[samples] == rows, "attention: the samples own rows [",
        offsets[0], ", ", offsets[samples], ") and not all of ", rows);
  for (std::int64_t n = 0; n < samples; ++n)
    check(offsets[n] >= 0 && lengths[n] >= 0 && offsets[n] + lengths[n] <= offsets[n + 1] &&
              offsets[n + 1] <= rows && lengths[n] <= sequences.max_length,
          "attention: sample ", n, " of length ", lengths[n], " does not fit its rows [",
          offsets[n], ", ", offsets[n + 1], ") of ", rows, " or the longest length ",
          sequences.max_length);
  const auto key_heads = options.heads / options.sharing();
  dev.for_tiles(samples * key_heads, [&](std::int64_t task) {
    const auto n = task / key_heads;
    body(Head{sequences, options, offsets[n], offsets[n + 1] - offsets[n], lengths[n],
              task % key_heads, columns / options.heads, columns});
  });
}

/// Widens the head to a dense matrix [length, size] of the accumulation type.
template <class T>
std::vector<Accumulator<T>> widen(const Head& at, const T* from, std::int64_t stride) {
  using A = Accumulator<T>;
  std::vector<A> values(static_cast<std::size_t>(at.length * at.size));
  for (std::int64_t row = 0; row < at.length; ++row) {
    const T* source = from + at.offset(stride) + row * stride;
    A* target = values.data() + row * at.size;
    for (std::int64_t c = 0; c < at.size; ++c) target[c] = static_cast<A>(source[c]);
  }
  return values;
}
template <class T>
void narrow(const Head& at, const std::vector<Accumulator<T>>& values, T* to, std::int64_t stride) {
  for (std::int64_t row = 0; row < at.rows; ++row) {
    T* target = to + at.offset(stride) + row * stride;
    if (row >= at.length) {
      for (std::int64_t c = 0; c < at.size; ++c) target[c] = T(0.0f);
      continue;
    }
    const auto* source = values.data() + row * at.size;
    for (std::int64_t c = 0; c < at.size; ++c) target[c] = static_cast<T>(source[c]);
  }
}

/// Calls decide(j, keep) for each probability of one query.
template <class Decide>
void for_kept_keys(const Head& at, std::int64_t query, Decide decide) {
  const auto& options = at.options;
  const auto number = at.sequences.row_numbers.data<std::int64_t>()[at.first_row + query];
  const auto first =
      (number * options.total_heads + options.first_head + at.head) * at.sequences.max_length;
  for_kept(options.random, options.dropout, static_cast<std::uint64_t>(first), at.seen(query),
           decide);
}

/// Turns one row of `width` scores into probabilities with dropout applied; returns their logsumexp.
template <class A>
A mix(const Head& at, std::int64_t query, std::int64_t width, A* row) {
  const auto length = at.seen(query);
  std::fill(row + length, row + width, A(0));
  const A most = largest<A>(length, [=](std::int64_t j) { return row[j]; });
  for (std::int64_t j = 0; j < length; ++j) row[j] = fast_exp(row[j] - most);
  const A sum = lane_sum<A>(length, [=](std::int64_t j) { return row[j]; });
  const A factor = static_cast<A>(1.0 / (1.0 - at.options.dropout)) / sum;
  if (at.options.dropout > 0)
    for_kept_keys(at, query,
                  [=](std::int64_t j, bool keep) { row[j] = keep ? row[j] * factor : A(0); });
  else
    for (std::int64_t j = 0; j < length; ++j) row[j] *= factor;
  return most + std::log(sum);
}

/// In place: scores become the probabilities after dropout, and their gradients the gradients of the
/// scores. With probabilities p and scaled dropout mask m: y = (p m) v, so dv = (p m)^T dy and ds = p
/// (m (dy v^T) - dy . y), because sum_j p m (dy v^T) = dy . y for each query.
template <class A>
void unmix(const Head& at, std::int64_t query, std::int64_t width, A logsumexp, A inner, A* row,
           A* gradients) {
  const auto length = at.seen(query);
  std::fill(row + length, row + width, A(0));
  std::fill(gradients + length, gradients + width, A(0));
  for (std::int64_t j = 0; j < length; ++j) row[j] = fast_exp(row[j] - logsumexp);
  if (at.options.dropout > 0) {
    const A scale = static_cast<A>(1.0 / (1.0 - at.options.dropout));
    for_kept_keys(at, query, [=](std::int64_t j, bool keep) {
      const A mask = keep ? scale : A(0);
      gradients[j] = row[j] * (mask * gradients[j] - inner);
      row[j] *= mask;
    });
  } else {
    for (std::int64_t j = 0; j < length; ++j) gradients[j] = row[j] * (gradients[j] - inner);
  }
}

}  // namespace dhp::detail::cpu

namespace dhp::detail {

void attention_forward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> q, ConstView<Cpu> k,
                          ConstView<Cpu> v, const Sequences<Cpu>& sequences,
                          const AttentionOptions& options, View<Cpu> y, View<Cpu> logsumexp) {
  visit_floating(q.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    const auto key_stride = options.stride(k.columns());
    cpu::for_heads(dev, sequences, options, q, [&](const cpu::Head& keys) {
      const auto length = keys.length, size = keys.size;
      const auto wide_k = cpu::widen(keys, k.data<T>(), key_stride);
      const auto wide_v = cpu::widen(keys, v.data<T>(), key_stride);
      std::vector<A> scores(static_cast<std::size_t>(std::min(cpu::query_block, length) * length));
      keys.for_queries([&](const cpu::Head& at) {
        A* sums = logsumexp.data<A>() + at.head * q.rows() + at.first_row;
        std::fill(sums + length, sums + at.rows, A(0));
        const auto wide_q = cpu::widen(at, q.data<T>(), options.stride(at.columns));
        std::vector<A> mixed(wide_q.size());
        for (std::int64_t first = 0; first < length; first += cpu::query_block) {
          const auto count = std::min(cpu::query_block, length - first);
          const auto seen = at.seen(first + count - 1);  // by any query of the block
          const auto part = first * size;
          cpu::serial_gemm<A>(false, true, count, seen, size, at.scale(), wide_q.data() + part,
                              wide_k.data(), 0, scores.data());
          for (std::int64_t i = 0; i < count; ++i)
            sums[first + i] = cpu::mix(at, first + i, seen, scores.data() + i * seen);
          cpu::serial_gemm<A>(false, false, count, size, seen, 1, scores.data(), wide_v.data(), 0,
                              mixed.data() + part);
        }
        cpu::narrow(at, mixed, y.data<T>(), at.columns);
      });
    });
  });
}
void attention_backward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> dy, ConstView<Cpu> q,
                           ConstView<Cpu> k, ConstView<Cpu> v, ConstView<Cpu> y,
                           ConstView<Cpu> logsumexp, const Sequences<Cpu>& sequences,
                           const AttentionOptions& options, View<Cpu> dq, View<Cpu> dk,
                           View<Cpu> dv) {
  visit_floating(q.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    const auto key_stride = options.stride(k.columns());
    cpu::for_heads(dev, sequences, options, q, [&](const cpu::Head& keys) {
      const auto length = keys.length, size = keys.size;
      const auto wide_k = cpu::widen(keys, k.data<T>(), key_stride);
      const auto wide_v = cpu::widen(keys, v.data<T>(), key_stride);
      std::vector<A> wide_dk(wide_k.size()), wide_dv(wide_k.size());
      std::vector<A> scores(static_cast<std::size_t>(std::min(cpu::query_block, length) * length));
      std::vector<A> gradients(scores.size());
      double beta = 0;
      keys.for_queries([&](const cpu::Head& at) {
        const A* sums = logsumexp.data<A>() + at.head * q.rows() + at.first_row;
        const auto wide_q = cpu::widen(at, q.data<T>(), options.stride(at.columns));
        const auto wide_y = cpu::widen(at, y.data<T>(), at.columns);
        const auto wide_dy = cpu::widen(at, dy.data<T>(), at.columns);
        std::vector<A> wide_dq(wide_q.size());
        for (std::int64_t first = 0; first < length; first += cpu::query_block) {
          const auto count = std::min(cpu::query_block, length - first);
          const auto seen = at.seen(first + count - 1);
          const A* block_q = wide_q.data() + first * size;
          const A* block_dy = wide_dy.data() + first * size;
          cpu::serial_gemm<A>(false, true, count, seen, size, at.scale(), block_q, wide_k.data(), 0,
                              scores.data());
          cpu::serial_gemm<A>(false, true, count, seen, size, 1, block_dy, wide_v.data(), 0,
                              gradients.data());
          for (std::int64_t i = 0; i < count; ++i) {
            const A* dy_row = block_dy + i * size;
            const A* y_row = wide_y.data() + (first + i) * size;
            const A inner =
                cpu::lane_sum<A>(size, [=](std::int64_t c) { return dy_row[c] * y_row[c]; });
            cpu::unmix(at, first + i, seen, sums[first + i], inner, scores.data() + i * seen,
                       gradients.data() + i * seen);
          }
          cpu::serial_gemm<A>(true, false, seen, size, count, 1, scores.data(), block_dy, beta,
                              wide_dv.data());
          cpu::serial_gemm<A>(false, false, count, size, seen, at.scale(), gradients.data(),
                              wide_k.data(), 0, wide_dq.data() + first * size);
          cpu::serial_gemm<A>(true, false, seen, size, count, at.scale(), gradients.data(), block_q,
                              beta, wide_dk.data());
          beta = 1;
        }
        cpu::narrow(at, wide_dq, dq.data<T>(), options.stride(at.columns));
      });
      cpu::narrow(keys, wide_dk, dk.data<T>(), key_stride);
      cpu::narrow(keys, wide_dv, dv.data<T>(), key_stride);
    });
  });
}

}  // namespace dhp::detail
