// Attention on the Cpu: one task per sample and head, in fixed blocks of queries, with the packed
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

namespace dhp::cpu {

template <class T>
struct AttentionKernel {
  using A = Accumulator<T>;

  /// The rows of one head and sample in a [R, columns] tensor.
  struct Head {
    std::int64_t first_row, rows, length;  ///< the last rows - length are padding
    std::int64_t head, column, size;
    std::int64_t columns;
    double scale;
    [[nodiscard]] std::int64_t offset() const { return first_row * columns + column; }
  };
  /// Large enough to amortize the packing of the keys.
  static constexpr std::int64_t query_block = 128;

  static void forward(Cpu& dev, const T* q, const T* k, const T* v, const Sequences<Cpu>& sequences,
                      const AttentionOptions& options, std::int64_t rows, std::int64_t columns,
                      T* y, A* logsumexp);
  static void backward(Cpu& dev, const T* dy, const T* q, const T* k, const T* v, const T* y,
                       const A* logsumexp, const Sequences<Cpu>& sequences,
                       const AttentionOptions& options, std::int64_t rows, std::int64_t columns,
                       T* dq, T* dk, T* dv);

 private:
  template <class Body>
  static void for_heads(Cpu& dev, const Sequences<Cpu>& sequences, const AttentionOptions& options,
                        std::int64_t rows, std::int64_t columns, Body body);
  /// Widens the head to a dense matrix [length, size] of A.
  static std::vector<A> widen(const Head& at, const T* from);
  static void narrow(const Head& at, const std::vector<A>& values, T* to);
  /// Calls mask(j, keep) for each probability of one query.
  template <class Decide>
  static void for_kept_keys(const Head& at, const Sequences<Cpu>& sequences,
                            const AttentionOptions& options, std::int64_t query, Decide decide) {
    const auto number = sequences.row_numbers.data<std::int64_t>()[at.first_row + query];
    const auto first =
        (number * options.total_heads + options.first_head + at.head) * sequences.max_length;
    for_kept(options.random, options.dropout, static_cast<std::uint64_t>(first), at.length, decide);
  }
  /// c [m, n] = alpha op(a) op(b) + beta c, all dense.
  static void multiply(bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k,
                       double alpha, const A* a, const A* b, double beta, A* c) {
    Gemm<A>::run_serial(ta, tb, m, n, k, alpha, a, ta ? m : k, b, tb ? k : n, beta, c, n);
  }
  /// Turns one row of scores into probabilities with dropout applied.
  static void mix(const Head& at, const Sequences<Cpu>& sequences, const AttentionOptions& options,
                  std::int64_t query, A* row, A& logsumexp);
  /// In place: scores become the probabilities after dropout, and their gradients the gradients of
  /// the scores.
  static void unmix(const Head& at, const Sequences<Cpu>& sequences,
                    const AttentionOptions& options, std::int64_t query, A logsumexp, A inner,
                    A* row, A* gradients);
};

template <class T>
template <class Body>
void AttentionKernel<T>::for_heads(Cpu& dev, const Sequences<Cpu>& sequences,
                                   const AttentionOptions& options, std::int64_t rows,
                                   std::int64_t columns, Body body) {
  const auto* offsets = sequences.offsets.data<std::int32_t>();
  const auto* lengths = sequences.lengths.data<std::int32_t>();
  const auto samples = sequences.lengths.count();
  check(offsets[0] == 0 && offsets[samples] == rows, "attention: the samples own rows [",
        offsets[0], ", ", offsets[samples], ") and not all of ", rows);
  for (std::int64_t n = 0; n < samples; ++n)
    check(offsets[n] >= 0 && lengths[n] >= 0 && offsets[n] + lengths[n] <= offsets[n + 1] &&
              offsets[n + 1] <= rows && lengths[n] <= sequences.max_length,
          "attention: sample ", n, " of length ", lengths[n], " does not fit its rows [",
          offsets[n], ", ", offsets[n + 1], ") of ", rows, " or the longest length ",
          sequences.max_length);
  const std::int64_t size = columns / options.heads;
  const double scale = 1.0 / std::sqrt(static_cast<double>(size));
  dev.for_tiles(samples * options.heads, [&](std::int64_t task) {
    const auto n = task / options.heads;
    const auto head = task % options.heads;
    body(Head{offsets[n], offsets[n + 1] - offsets[n], lengths[n], head, head * size, size, columns,
              scale});
  });
}

template <class T>
std::vector<Accumulator<T>> AttentionKernel<T>::widen(const Head& at, const T* from) {
  std::vector<A> values(static_cast<std::size_t>(at.length * at.size));
  for (std::int64_t row = 0; row < at.length; ++row) {
    const T* source = from + at.offset() + row * at.columns;
    A* target = values.data() + row * at.size;
    for (std::int64_t c = 0; c < at.size; ++c) target[c] = static_cast<A>(source[c]);
  }
  return values;
}

template <class T>
void AttentionKernel<T>::narrow(const Head& at, const std::vector<A>& values, T* to) {
  for (std::int64_t row = 0; row < at.rows; ++row) {
    T* target = to + at.offset() + row * at.columns;
    if (row >= at.length) {
      for (std::int64_t c = 0; c < at.size; ++c) target[c] = T(0.0f);
      continue;
    }
    const A* source = values.data() + row * at.size;
    for (std::int64_t c = 0; c < at.size; ++c) target[c] = static_cast<T>(source[c]);
  }
}

template <class T>
void AttentionKernel<T>::mix(const Head& at, const Sequences<Cpu>& sequences,
                             const AttentionOptions& options, std::int64_t query, A* row,
                             A& logsumexp) {
  const auto length = at.length;
  const A most = largest<A>(length, [=](std::int64_t j) { return row[j]; });
  for (std::int64_t j = 0; j < length; ++j) row[j] = fast_exp(row[j] - most);
  const A sum = lane_sum<A>(length, [=](std::int64_t j) { return row[j]; });
  logsumexp = most + std::log(sum);
  const A factor = static_cast<A>(1.0 / (1.0 - options.dropout)) / sum;
  if (options.dropout > 0)
    for_kept_keys(at, sequences, options, query,
                  [=](std::int64_t j, bool keep) { row[j] = keep ? row[j] * factor : A(0); });
  else
    for (std::int64_t j = 0; j < length; ++j) row[j] *= factor;
}

template <class T>
void AttentionKernel<T>::forward(Cpu& dev, const T* q, const T* k, const T* v,
                                 const Sequences<Cpu>& sequences, const AttentionOptions& options,
                                 std::int64_t rows, std::int64_t columns, T* y, A* logsumexp) {
  for_heads(dev, sequences, options, rows, columns, [&](const Head& at) {
    const auto length = at.length;
    A* sums = logsumexp + at.head * rows + at.first_row;
    std::fill(sums + length, sums + at.rows, A(0));
    const auto wide_q = widen(at, q);
    const auto wide_k = widen(at, k);
    const auto wide_v = widen(at, v);
    std::vector<A> mixed(wide_q.size());
    std::vector<A> scores(static_cast<std::size_t>(std::min(query_block, length) * length));
    for (std::int64_t first = 0; first < length; first += query_block) {
      const auto count = std::min(query_block, length - first);
      const auto part = first * at.size;
      multiply(false, true, count, length, at.size, at.scale, wide_q.data() + part, wide_k.data(),
               0, scores.data());
      for (std::int64_t i = 0; i < count; ++i)
        mix(at, sequences, options, first + i, scores.data() + i * length, sums[first + i]);
      multiply(false, false, count, at.size, length, 1, scores.data(), wide_v.data(), 0,
               mixed.data() + part);
    }
    narrow(at, mixed, y);
  });
}

// With probabilities p and scaled dropout mask m: y = (p m) v, so dv = (p m)^T dy and ds = p (m (dy
// v^T) - dy . y), because sum_j p m (dy v^T) = dy . y for each query.
template <class T>
void AttentionKernel<T>::unmix(const Head& at, const Sequences<Cpu>& sequences,
                               const AttentionOptions& options, std::int64_t query, A logsumexp,
                               A inner, A* row, A* gradients) {
  for (std::int64_t j = 0; j < at.length; ++j) row[j] = fast_exp(row[j] - logsumexp);
  if (options.dropout > 0) {
    const A scale = static_cast<A>(1.0 / (1.0 - options.dropout));
    for_kept_keys(at, sequences, options, query, [=](std::int64_t j, bool keep) {
      const A mask = keep ? scale : A(0);
      gradients[j] = row[j] * (mask * gradients[j] - inner);
      row[j] *= mask;
    });
  } else {
    for (std::int64_t j = 0; j < at.length; ++j) gradients[j] = row[j] * (gradients[j] - inner);
  }
}

template <class T>
void AttentionKernel<T>::backward(Cpu& dev, const T* dy, const T* q, const T* k, const T* v,
                                  const T* y, const A* logsumexp, const Sequences<Cpu>& sequences,
                                  const AttentionOptions& options, std::int64_t rows,
                                  std::int64_t columns, T* dq, T* dk, T* dv) {
  for_heads(dev, sequences, options, rows, columns, [&](const Head& at) {
    const auto length = at.length;
    const auto size = at.size;
    const A* sums = logsumexp + at.head * rows + at.first_row;
    const auto wide_q = widen(at, q);
    const auto wide_k = widen(at, k);
    const auto wide_v = widen(at, v);
    const auto wide_y = widen(at, y);
    const auto wide_dy = widen(at, dy);
    std::vector<A> wide_dq(wide_q.size()), wide_dk(wide_q.size()), wide_dv(wide_q.size());
    std::vector<A> scores(static_cast<std::size_t>(std::min(query_block, length) * length));
    std::vector<A> gradients(scores.size());
    for (std::int64_t first = 0; first < length; first += query_block) {
      const auto count = std::min(query_block, length - first);
      const A* block_q = wide_q.data() + first * size;
      const A* block_dy = wide_dy.data() + first * size;
      multiply(false, true, count, length, size, at.scale, block_q, wide_k.data(), 0,
               scores.data());
      multiply(false, true, count, length, size, 1, block_dy, wide_v.data(), 0, gradients.data());
      for (std::int64_t i = 0; i < count; ++i) {
        const A* dy_row = block_dy + i * size;
        const A* y_row = wide_y.data() + (first + i) * size;
        const A inner = lane_sum<A>(size, [=](std::int64_t c) { return dy_row[c] * y_row[c]; });
        unmix(at, sequences, options, first + i, sums[first + i], inner, scores.data() + i * length,
              gradients.data() + i * length);
      }
      const double beta = first == 0 ? 0 : 1;
      multiply(true, false, length, size, count, 1, scores.data(), block_dy, beta, wide_dv.data());
      multiply(false, false, count, size, length, at.scale, gradients.data(), wide_k.data(), 0,
               wide_dq.data() + first * size);
      multiply(true, false, length, size, count, at.scale, gradients.data(), block_q, beta,
               wide_dk.data());
    }
    narrow(at, wide_dq, dq);
    narrow(at, wide_dk, dk);
    narrow(at, wide_dv, dv);
  });
}

}  // namespace dhp::cpu

namespace dhp {

inline void attention_forward_on(Cpu& dev, ConstView<Cpu> q, ConstView<Cpu> k, ConstView<Cpu> v,
                                 const Sequences<Cpu>& sequences, const AttentionOptions& options,
                                 View<Cpu> y, View<Cpu> logsumexp) {
  visit_floating(q.dtype(), [&]<class T>(Tag<T>) {
    cpu::AttentionKernel<T>::forward(dev, q.data<T>(), k.data<T>(), v.data<T>(), sequences, options,
                                     q.rows(), q.columns(), y.data<T>(),
                                     logsumexp.data<Accumulator<T>>());
  });
}
inline void attention_backward_on(Cpu& dev, ConstView<Cpu> dy, ConstView<Cpu> q, ConstView<Cpu> k,
                                  ConstView<Cpu> v, ConstView<Cpu> y, ConstView<Cpu> logsumexp,
                                  const Sequences<Cpu>& sequences, const AttentionOptions& options,
                                  View<Cpu> dq, View<Cpu> dk, View<Cpu> dv) {
  visit_floating(q.dtype(), [&]<class T>(Tag<T>) {
    cpu::AttentionKernel<T>::backward(dev, dy.data<T>(), q.data<T>(), k.data<T>(), v.data<T>(),
                                      y.data<T>(), logsumexp.data<Accumulator<T>>(), sequences,
                                      options, q.rows(), q.columns(), dq.data<T>(), dk.data<T>(),
                                      dv.data<T>());
  });
}

}  // namespace dhp
