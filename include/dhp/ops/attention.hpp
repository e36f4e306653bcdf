// Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1) over samples that lie ragged in the rows:
// sample n owns rows [offsets[n], offsets[n + 1]); the first lengths[n] of them are its tokens, the rest is
// padding, whose output and gradient are 0. A padded batch and a packed one differ in the offsets alone.
// Never holds more than one T x T matrix of one sample and head per thread.
#pragma once

#include <dhp/core/rng.hpp>
#include <dhp/tensor/view.hpp>

namespace dhp {

template <class Dev>
struct Sequences {
  ConstView<Dev> offsets;      ///< i32 [N + 1]
  ConstView<Dev> lengths;      ///< i32 [N]
  ConstView<Dev> row_numbers;  ///< i64 [R], global and unpacked: numbers the dropped probabilities
  std::int64_t max_length;     ///< of any sample
};

/// The scale is 1 / sqrt(head size). Dropout keeps probability (i, j) of a head if uniform((row_numbers[i]
/// * total_heads + first_head + head) * max_length + j) >= p, j counted within the sample.
struct AttentionOptions {
  int heads = 1;  ///< in these tensors
  int first_head = 0;
  int total_heads = 1;
  double dropout = 0;
  RandomStream random{};
};

template <Device Dev>
void check_attention(In<Dev> q, In<Dev> k, In<Dev> v, In<Dev> y, In<Dev> logsumexp,
                     const Sequences<Dev>& sequences, const AttentionOptions& options) {
  check(q.shape() == k.shape() && q.shape() == v.shape() && q.shape() == y.shape() &&
            q.dtype() == k.dtype() && q.dtype() == v.dtype() && q.dtype() == y.dtype(),
        "attention: q ", q.shape(), ", k ", k.shape(), ", v ", v.shape(), " and y ", y.shape(),
        " differ");
  check(options.heads >= 1 && q.columns() % options.heads == 0, "attention: ", q.columns(),
        " columns cannot be divided into ", options.heads, " heads");
  check(logsumexp.count() == options.heads * q.rows(), "attention: logsumexp ", logsumexp.shape(),
        " is not [heads, rows]");
  check(sequences.offsets.count() == sequences.lengths.count() + 1 &&
            sequences.row_numbers.count() == q.rows(),
        "attention: offsets ", sequences.offsets.shape(), ", lengths ", sequences.lengths.shape(),
        " and row numbers ", sequences.row_numbers.shape(), " do not fit ", q.rows(), " rows");
}

/// q, k, v, y [R, heads * head size]; logsumexp [heads, R] in the accumulation type, for the backward pass.
template <Device Dev>
void attention_forward(Dev& dev, In<Dev> q, In<Dev> k, In<Dev> v, const Sequences<Dev>& sequences,
                       const AttentionOptions& options, Out<Dev> y, Out<Dev> logsumexp) {
  check_attention<Dev>(q, k, v, y, logsumexp, sequences, options);
  attention_forward_on(dev, q, k, v, sequences, options, y, logsumexp);
}

/// dq, dk and dv are written whole. Probabilities are computed again from logsumexp (Dao et al. 2022).
template <Device Dev>
void attention_backward(Dev& dev, In<Dev> dy, In<Dev> q, In<Dev> k, In<Dev> v, In<Dev> y,
                        In<Dev> logsumexp, const Sequences<Dev>& sequences,
                        const AttentionOptions& options, Out<Dev> dq, Out<Dev> dk, Out<Dev> dv) {
  check_attention<Dev>(q, k, v, y, logsumexp, sequences, options);
  check(dy.shape() == q.shape() && dq.shape() == q.shape() && dk.shape() == q.shape() &&
            dv.shape() == q.shape(),
        "attention: gradients do not have the shape of q ", q.shape());
  attention_backward_on(dev, dy, q, k, v, y, logsumexp, sequences, options, dq, dk, dv);
}

}  // namespace dhp
