// Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1) over ragged samples: sample n owns rows
// [offsets[n], offsets[n + 1]). Its first lengths[n] rows are tokens; the others are padding, whose outputs and
// gradients are 0. Packed and padded batches differ only in the offsets. No implementation stores the T x T
// probabilities of a head. With a causal mask, a token attends to no later token of its sample. Heads may share keys
// and values (Ainslie et al. 2023, "GQA", section 2.2).
#pragma once

#include <dhp/core/rng.hpp>
#include <dhp/tensor/view.hpp>

#include <array>
#include <vector>

namespace dhp {

template <class Dev>
struct Sequences {
  ConstView<Dev> offsets;  ///< i32 [N + 1], from 0 to R
  ConstView<Dev> lengths;  ///< i32 [N]
  // Global, unpacked row numbers, i64 [R], which index the random numbers of dropout.
  ConstView<Dev> row_numbers;
  std::int64_t max_length;  ///< length of the longest sample
};

/// Options of attention. The scale is 1 / sqrt(head size). Dropout keeps probability (i, j) of a head if
/// short_bits((row_numbers[i] * total_heads + first_head + head) * max_length + j) >= 2^16 p, where j counts from the
/// beginning of the sample.
struct AttentionOptions {
  int heads = 1;  ///< number of heads in these tensors
  int first_head = 0;
  int total_heads = 1;
  int key_heads = 0;  ///< number of heads of k and v; consecutive heads of q share one; 0: `heads`
  bool causal = false;  ///< query i attends only to the keys j <= i of its sample
  double dropout = 0;
  RandomStream random{};
  /// Elements from one row to the next in q, k, v, dq, dk and dv, if they are columns of a wider matrix. 0 means that
  /// the rows are contiguous.
  std::int64_t row_stride = 0;

  [[nodiscard]] std::int64_t stride(std::int64_t columns) const {
    return row_stride == 0 ? columns : row_stride;
  }
  /// Returns how many heads of q share one head of k and v.
  [[nodiscard]] int sharing() const { return key_heads == 0 ? 1 : heads / key_heads; }
};

namespace detail {
/// A run of consecutive tokens of one sample.
struct TokenRun {
  std::int64_t row = 0;       ///< row of the first token
  std::int64_t rows = 0;      ///< number of rows; those from `length` on are padding
  std::int64_t length = 0;    ///< number of tokens
  std::int64_t position = 0;  ///< position of the first token in its sample
};
/// Two runs of one sample, ordered by position. Each run may be empty.
using TokenRuns = std::array<TokenRun, 2>;

/// The attention of a part of each sample's queries to a part of the sample's keys.
template <class Dev>
struct AttentionParts {
  std::vector<TokenRuns> queries, keys;  ///< one element per sample
  ConstView<Dev> row_numbers;            ///< i64: row numbers of the queries
  std::int64_t max_length = 0;           ///< length of the longest sample
  bool more = false;  ///< add to the outputs, which hold the results of other parts
};

/// Whether a device has kernels for attend_to_part_forward() and attend_to_part_backward().
template <class Dev>
concept AttendsToParts = requires(Dev& dev, ConstView<Dev> in, const AttentionParts<Dev>& parts,
                                  const AttentionOptions& options, View<Dev> out) {
  attend_to_part_forward_on(dev, in, in, in, parts, options, out, out);
  attend_to_part_backward_on(dev, in, in, in, in, in, in, parts, options, out, out, out);
};

/// Throws Error unless the view fits q. sharing: the number of heads of q that share one head of the view.
template <Device Dev>
void check_like_q(const char* name, InView<Dev> view, InView<Dev> q, int sharing = 1) {
  check(view.rows() == q.rows() && view.columns() * sharing == q.columns() &&
            view.dtype() == q.dtype(),
        "attention: ", name, " ", view.shape(), " of ", view.dtype(), " is not like q ", q.shape(),
        " of ", q.dtype(), sharing == 1 ? "" : " with shared heads");
}
template <Device Dev>
void check_heads(InView<Dev> q, InView<Dev> logsumexp, const AttentionOptions& options) {
  check(
      options.key_heads >= 0 && (options.key_heads == 0 || options.heads % options.key_heads == 0),
      "attention: ", options.heads, " heads cannot share the keys of ", options.key_heads);
  check(options.stride(q.columns()) >= q.columns(), "attention: rows of ", q.columns(),
        " columns cannot be ", options.row_stride, " elements apart");
  check(options.heads >= 1 && q.columns() % options.heads == 0, "attention: ", q.columns(),
        " columns cannot be divided into ", options.heads, " heads");
  check(options.first_head >= 0 && options.first_head + options.heads <= options.total_heads,
        "attention: heads [", options.first_head, ", ", options.first_head + options.heads,
        ") are not among ", options.total_heads);
  check(options.dropout >= 0 && options.dropout < 1,
        "attention: the dropout probability must be in [0, 1), got ", options.dropout);
  check(logsumexp.count() == options.heads * q.rows() &&
            logsumexp.dtype() == accumulation_type(q.dtype()),
        "attention: logsumexp ", logsumexp.shape(), " of ", logsumexp.dtype(), " is not [",
        options.heads, ", ", q.rows(), "] of ", accumulation_type(q.dtype()));
}
template <Device Dev>
void check_attention(InView<Dev> q, InView<Dev> k, InView<Dev> v, InView<Dev> y,
                     InView<Dev> logsumexp, const Sequences<Dev>& sequences,
                     const AttentionOptions& options) {
  check_heads<Dev>(q, logsumexp, options);
  check_like_q<Dev>("k", k, q, options.sharing());
  check_like_q<Dev>("v", v, q, options.sharing());
  check_like_q<Dev>("y", y, q);
  check(sequences.offsets.count() == sequences.lengths.count() + 1 &&
            sequences.row_numbers.count() == q.rows(),
        "attention: offsets ", sequences.offsets.shape(), ", lengths ", sequences.lengths.shape(),
        " and row numbers ", sequences.row_numbers.shape(), " do not fit ", q.rows(), " rows");
  check(sequences.offsets.dtype() == DType::i32 && sequences.lengths.dtype() == DType::i32 &&
            sequences.row_numbers.dtype() == DType::i64,
        "attention: offsets of ", sequences.offsets.dtype(), ", lengths of ",
        sequences.lengths.dtype(), " and row numbers of ", sequences.row_numbers.dtype(),
        " are not i32, i32 and i64");
}

/// Throws Error unless each run lies within `rows` rows, and its tokens at positions below max_length.
inline void check_runs(const char* what, const std::vector<TokenRuns>& samples, std::int64_t rows,
                       std::int64_t max_length) {
  for (const auto& runs : samples)
    for (const auto& run : runs)
      check(run.row >= 0 && run.length >= 0 && run.length <= run.rows &&
                run.row + run.rows <= rows && run.position >= 0 &&
                (run.length == 0 || run.position + run.length <= max_length),
            "attention: ", run.length, " tokens at position ", run.position, " in rows [", run.row,
            ", ", run.row + run.rows, ") of ", what, " do not fit ", rows,
            " rows or the longest length ", max_length);
}
template <Device Dev>
void check_part(InView<Dev> q, InView<Dev> k, InView<Dev> v, InView<Dev> logsumexp,
                const AttentionParts<Dev>& parts, const AttentionOptions& options) {
  check_heads<Dev>(q, logsumexp, options);
  check(k.columns() * options.sharing() == q.columns() && k.dtype() == q.dtype(), "attention: k ",
        k.shape(), " of ", k.dtype(), " does not fit q ", q.shape(), " of ", q.dtype());
  check(v.shape() == k.shape() && v.dtype() == k.dtype(), "attention: v ", v.shape(), " of ",
        v.dtype(), " is not like k ", k.shape(), " of ", k.dtype());
  check(parts.queries.size() == parts.keys.size() && parts.row_numbers.count() == q.rows() &&
            parts.row_numbers.dtype() == DType::i64,
        "attention: queries of ", parts.queries.size(), " samples, keys of ", parts.keys.size(),
        " and row numbers ", parts.row_numbers.shape(), " of ", parts.row_numbers.dtype(),
        "; give both of one number of samples, and row numbers i64 [", q.rows(), "]");
  check_runs("q", parts.queries, q.rows(), parts.max_length);
  check_runs("k", parts.keys, k.rows(), parts.max_length);
}
/// Throws Error unless `sum` has the element count of x and x's accumulation type.
template <Device Dev>
void check_sum(const char* name, InView<Dev> sum, InView<Dev> x) {
  check(sum.count() == x.count() && sum.dtype() == accumulation_type(x.dtype()),
        "attention: ", name, " ", sum.shape(), " of ", sum.dtype(), " is not ", x.shape(), " of ",
        accumulation_type(x.dtype()));
}

/// attention_forward() of parts of samples: q [Q, heads * head size]; k, v [K, key heads * head size]. Writes, or with
/// `more` adds to, y [Q, heads * head size] and logsumexp [heads, Q], both in the accumulation type.
template <Device Dev>
  requires AttendsToParts<Dev>
void attend_to_part_forward(Dev& dev, InView<Dev> q, InView<Dev> k, InView<Dev> v,
                            const AttentionParts<Dev>& parts, const AttentionOptions& options,
                            OutView<Dev> y, OutView<Dev> logsumexp) {
  check_part<Dev>(q, k, v, logsumexp, parts, options);
  check_sum<Dev>("y", y, q);
  attend_to_part_forward_on(dev, q, k, v, parts, options, y, logsumexp);
}

/// attention_backward() of parts of samples: dy, q [Q, heads * head size] and k, v [K, key heads * head size] have one
/// type; y, dq [Q, heads * head size], dk, dv [K, key heads * head size] and logsumexp [heads, Q] have the accumulation
/// type. y and logsumexp are the results over all parts. With `more` it adds to dq, dk and dv.
template <Device Dev>
  requires AttendsToParts<Dev>
void attend_to_part_backward(Dev& dev, InView<Dev> dy, InView<Dev> q, InView<Dev> k, InView<Dev> v,
                             InView<Dev> y, InView<Dev> logsumexp, const AttentionParts<Dev>& parts,
                             const AttentionOptions& options, OutView<Dev> dq, OutView<Dev> dk,
                             OutView<Dev> dv) {
  check_part<Dev>(q, k, v, logsumexp, parts, options);
  check_like_q<Dev>("dy", dy, q);
  check_sum<Dev>("y", y, q);
  check_sum<Dev>("dq", dq, q);
  check_sum<Dev>("dk", dk, k);
  check_sum<Dev>("dv", dv, v);
  attend_to_part_backward_on(dev, dy, q, k, v, y, logsumexp, parts, options, dq, dk, dv);
}
/// Return whether a library of the device has computed the attention.
[[nodiscard]] bool attention_forward_library_on(Device auto&, const auto&...) { return false; }
[[nodiscard]] bool attention_backward_library_on(Device auto&, const auto&...) { return false; }
}  // namespace detail

/// Computes y [R, heads * head size] from q [R, heads * head size] and k, v [R, key heads * head size]. Writes
/// logsumexp [heads, R] in the accumulation type for the backward pass.
template <Device Dev>
void attention_forward(Dev& dev, InView<Dev> q, InView<Dev> k, InView<Dev> v,
                       const Sequences<Dev>& sequences, const AttentionOptions& options,
                       OutView<Dev> y, OutView<Dev> logsumexp) {
  detail::check_attention<Dev>(q, k, v, y, logsumexp, sequences, options);
  if (!attention_forward_library_on(dev, q, k, v, sequences, options, y, logsumexp))
    attention_forward_on(dev, q, k, v, sequences, options, y, logsumexp);
}

/// Overwrites dq, dk and dv from dy and the tensors of the forward pass. q, y, dy and dq are [R, heads * head size]; k,
/// v, dk and dv [R, key heads * head size]. Recomputes the probabilities from logsumexp [heads, R] (Dao et al. 2022).
template <Device Dev>
void attention_backward(Dev& dev, InView<Dev> dy, InView<Dev> q, InView<Dev> k, InView<Dev> v,
                        InView<Dev> y, InView<Dev> logsumexp, const Sequences<Dev>& sequences,
                        const AttentionOptions& options, OutView<Dev> dq, OutView<Dev> dk,
                        OutView<Dev> dv) {
  detail::check_attention<Dev>(q, k, v, y, logsumexp, sequences, options);
  detail::check_like_q<Dev>("dy", dy, q);
  detail::check_like_q<Dev>("dq", dq, q);
  detail::check_like_q<Dev>("dk", dk, q, options.sharing());
  detail::check_like_q<Dev>("dv", dv, q, options.sharing());
  if (!attention_backward_library_on(dev, dy, q, k, v, y, logsumexp, sequences, options, dq, dk,
                                     dv))
    attention_backward_on(dev, dy, q, k, v, y, logsumexp, sequences, options, dq, dk, dv);
}

}  // namespace dhp
