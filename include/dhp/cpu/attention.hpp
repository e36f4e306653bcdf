// Attention on the Cpu: one task per sample and head, products by the packed gemm. 16-bit heads are
// widened to float first, which they need for their sums anyway.
#pragma once

#include <dhp/cpu/column_reduce.hpp>
#include <dhp/cpu/dropout.hpp>
#include <dhp/cpu/gemm.hpp>
#include <dhp/cpu/softmax.hpp>
#include <dhp/cpu/vector_math.hpp>
#include <dhp/ops/attention.hpp>

#include <cmath>
#include <vector>

namespace dhp::cpu {

template <class T>
struct AttentionKernel {
  using A = Accumulator<T>;

  /// One head of one sample: its rows of a [R, columns] tensor.
  struct Head {
    std::int64_t first_row, rows, length;  ///< rows - length of them are padding
    std::int64_t head, column, size;
    std::int64_t columns;
    double scale;
    [[nodiscard]] std::int64_t offset() const { return first_row * columns + column; }
  };

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
  /// The head as a dense matrix [length, size] of A.
  static std::vector<A> widen(const Head& at, const T* from);
  static void narrow(const Head& at, const std::vector<A>& values, T* to);
  /// mask(j, keep) over the probabilities of one query.
  template <class Decide>
  static void for_kept_keys(const Head& at, const Sequences<Cpu>& sequences,
                            const AttentionOptions& options, std::int64_t query, Decide decide) {
    const auto number = sequences.row_numbers.data<std::int64_t>()[at.first_row + query];
    const auto first =
        (number * options.total_heads + options.first_head + at.head) * sequences.max_length;
    for_kept(options.random, options.dropout, static_cast<std::uint64_t>(first), at.length, decide);
  }
  /// c [m, n] = alpha op(a) op(b), dense matrices.
  static void multiply(bool ta, bool tb, std::int64_t m, std::int64_t n, std::int64_t k,
                       double alpha, const std::vector<A>& a, const std::vector<A>& b,
                       std::vector<A>& c) {
    c.resize(static_cast<std::size_t>(m * n));
    Gemm<A>::run_serial(ta, tb, m, n, k, alpha, a.data(), ta ? m : k, b.data(), tb ? k : n, 0.0,
                        c.data(), n);
  }
};

template <class T>
template <class Body>
void AttentionKernel<T>::for_heads(Cpu& dev, const Sequences<Cpu>& sequences,
                                   const AttentionOptions& options, std::int64_t rows,
                                   std::int64_t columns, Body body) {
  const auto* offsets = sequences.offsets.data<std::int32_t>();
  const auto* lengths = sequences.lengths.data<std::int32_t>();
  const auto samples = sequences.lengths.count();
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
    const A* source = values.data() + row * at.size;
    for (std::int64_t c = 0; c < at.size; ++c)
      target[c] = row < at.length ? static_cast<T>(source[c]) : T(0.0f);
  }
}

template <class T>
void AttentionKernel<T>::forward(Cpu& dev, const T* q, const T* k, const T* v,
                                 const Sequences<Cpu>& sequences, const AttentionOptions& options,
                                 std::int64_t rows, std::int64_t columns, T* y, A* logsumexp) {
  for_heads(dev, sequences, options, rows, columns, [&](const Head& at) {
    const auto length = at.length;
    std::vector<A> scores, mixed;
    multiply(false, true, length, length, at.size, at.scale, widen(at, q), widen(at, k), scores);
    for (std::int64_t i = 0; i < length; ++i) {
      A* row = scores.data() + i * length;
      const A most = largest<A>(length, [=](std::int64_t j) { return row[j]; });
      for (std::int64_t j = 0; j < length; ++j) row[j] = fast_exp(row[j] - most);
      const A sum = lane_sum<A>(length, [=](std::int64_t j) { return row[j]; });
      logsumexp[at.head * rows + at.first_row + i] = most + std::log(sum);
      const A factor = static_cast<A>(1.0 / (1.0 - options.dropout)) / sum;
      for (std::int64_t j = 0; j < length; ++j) row[j] *= factor;
      if (options.dropout > 0)
        for_kept_keys(at, sequences, options, i, [=](std::int64_t j, bool keep) {
          if (!keep) row[j] = A(0);
        });
    }
    multiply(false, false, length, at.size, length, 1.0, scores, widen(at, v), mixed);
    narrow(at, mixed, y);
    for (auto i = length; i < at.rows; ++i) logsumexp[at.head * rows + at.first_row + i] = A(0);
  });
}

// With p the probabilities, m the scaled dropout mask: y = (p m) v, so dv = (p m)^T dy, and for the scores
// ds = p (m (dy v^T) - sum_j dy y), because sum_j p m (dy v^T) = dy . y for each query.
template <class T>
void AttentionKernel<T>::backward(Cpu& dev, const T* dy, const T* q, const T* k, const T* v,
                                  const T* y, const A* logsumexp, const Sequences<Cpu>& sequences,
                                  const AttentionOptions& options, std::int64_t rows,
                                  std::int64_t columns, T* dq, T* dk, T* dv) {
  for_heads(dev, sequences, options, rows, columns, [&](const Head& at) {
    const auto length = at.length;
    const auto wide_q = widen(at, q);
    const auto wide_k = widen(at, k);
    const auto wide_dy = widen(at, dy);
    const auto wide_y = widen(at, y);
    std::vector<A> scores, gradients, result;
    multiply(false, true, length, length, at.size, at.scale, wide_q, wide_k, scores);
    multiply(false, true, length, length, at.size, 1.0, wide_dy, widen(at, v), gradients);
    const A kept_scale = static_cast<A>(1.0 / (1.0 - options.dropout));
    for (std::int64_t i = 0; i < length; ++i) {
      A* p = scores.data() + i * length;
      A* ds = gradients.data() + i * length;
      const A normaliser = logsumexp[at.head * rows + at.first_row + i];
      for (std::int64_t j = 0; j < length; ++j) p[j] = fast_exp(p[j] - normaliser);
      const A* dy_row = wide_dy.data() + i * at.size;
      const A* y_row = wide_y.data() + i * at.size;
      const A inner = lane_sum<A>(at.size, [=](std::int64_t c) { return dy_row[c] * y_row[c]; });
      if (options.dropout > 0)
        for_kept_keys(at, sequences, options, i, [=](std::int64_t j, bool keep) {
          ds[j] = p[j] * ((keep ? kept_scale * ds[j] : A(0)) - inner);
          p[j] = keep ? kept_scale * p[j] : A(0);
        });
      else
        for (std::int64_t j = 0; j < length; ++j) ds[j] = p[j] * (ds[j] - inner);
    }
    multiply(true, false, length, at.size, length, 1.0, scores, wide_dy, result);
    narrow(at, result, dv);
    multiply(false, false, length, at.size, length, at.scale, gradients, wide_k, result);
    narrow(at, result, dq);
    multiply(true, false, length, at.size, length, at.scale, gradients, wide_q, result);
    narrow(at, result, dk);
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
