// Implements attention on the Cpu with one task per sample and key head. A task multiplies blocks of queries by blocks
// of keys with the packed gemm and an online softmax (Milakov & Gimelshein 2018; Dao et al. 2022), so that it stores
// only one block of probabilities. 16-bit heads are widened to float, the type of their sums. Products of bf16 by tiles
// take them as they are, and probabilities and gradients of scores rounded to bf16.
#pragma once

#include <dhp/cpu/column_reduce.hpp>
#include <dhp/cpu/dropout.hpp>
#include <dhp/cpu/gemm.hpp>
#include <dhp/cpu/vector_math.hpp>
#include <dhp/ops/attention.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace dhp::detail::cpu {

/// Number of queries in a block: large enough to amortize the packing of keys and queries.
inline constexpr std::int64_t query_block = 128;
/// Number of keys in a block: small enough that the scores of a block and their gradients stay in L2.
inline constexpr std::int64_t key_block = 512;

/// A block of scores: the products of some queries and some keys of one head.
struct ScoreBlock {
  const AttentionParts<Cpu>& parts;
  const AttentionOptions& options;
  std::int64_t head;                     ///< head of q
  std::int64_t first_row, first_query;   ///< row in q and position of the first query
  std::int64_t first_key = 0, keys = 0;  ///< position of the first key; number of keys

  /// Returns how many keys, counted from the first key of the block, a query attends to.
  [[nodiscard]] std::int64_t seen(std::int64_t query) const {
    if (!options.causal) return keys;
    return std::clamp<std::int64_t>(first_query + query + 1 - first_key, 0, keys);
  }
  /// Calls decide(j, keep) for each key j that the query attends to; keep is false if dropout drops it.
  template <class Decide>
  void for_kept_keys(std::int64_t query, Decide decide) const {
    const auto number = parts.row_numbers.data<std::int64_t>()[first_row + query];
    const auto first =
        (number * options.total_heads + options.first_head + head) * parts.max_length + first_key;
    for_kept(options.random, options.dropout, static_cast<std::uint64_t>(first), seen(query),
             decide);
  }
};

/// Calls body(TypeTag<E>). E is the type in panels of attention's products: that of gemm(), but no pairs, which are not
/// worth their rounding.
void visit_attention_products(const Cpu& dev, DType type, const auto& body) {
  visit_products(dev, type, [&]<class E, class T>(TypeTag<E>, TypeTag<T>) {
    body(TypeTag<std::conditional_t<std::is_same_v<E, Pair>, Sum<E>, E>>());
  });
}

/// Copies tokens of one head to a dense matrix [tokens, size]. at: the head's first element in the first token's row.
template <class A>
void widen(const ConstView<Cpu>& from, std::int64_t at, std::int64_t stride, std::int64_t tokens,
           std::int64_t size, A* to) {
  visit_floating(from.dtype(), [&]<class T>(TypeTag<T>) {
    const T* const first = from.data<T>() + at;
    for (std::int64_t row = 0; row < tokens; ++row)
      convert(first + row * stride, to + row * size, size);
  });
}
/// Rounds a dense matrix into the rows of a run, and sets the padding rows of the run to 0. at: as in widen().
template <class A>
void narrow(const TokenRun& run, const A* from, std::int64_t size, const View<Cpu>& to,
            std::int64_t at, std::int64_t stride) {
  visit_floating(to.dtype(), [&]<class T>(TypeTag<T>) {
    T* const first = to.data<T>() + at;
    for (std::int64_t row = 0; row < run.rows; ++row)
      if (row < run.length) convert(from + row * size, first + row * stride, size);
      else std::fill_n(first + row * stride, size, T(0.0f));
  });
}

/// The keys and values of one key head of one sample, with a block of queries and its scores. E: the type in panels of
/// products.
template <class E>
struct KeyHead {
  using A = Sum<E>;
  using Factor = Loaded<E>;
  const AttentionParts<Cpu>& parts;
  const AttentionOptions& options;
  std::size_t sample;
  std::int64_t head, size, stride;  ///< number, size and row stride of the head in k and v
  std::int64_t count = 0;           ///< number of keys
  std::int64_t high = 0, wide = 0;  ///< rows and columns of the largest block of scores
  std::vector<Factor> k{}, v{}, q{};
  std::vector<A> scores{};
  std::vector<Factor> rounded{};  ///< a block of scores or their gradients as factors

  [[nodiscard]] const TokenRuns& queries() const { return parts.queries[sample]; }
  [[nodiscard]] const TokenRuns& runs() const { return parts.keys[sample]; }
  [[nodiscard]] double scale() const { return 1 / std::sqrt(double(size)); }
  template <class To = A>
  [[nodiscard]] std::vector<To> buffer(std::int64_t rows, std::int64_t columns) const {
    return std::vector<To>(as_size(rows * columns));
  }
  /// Returns the tokens of all runs as one dense matrix.
  template <class To = A>
  [[nodiscard]] std::vector<To> widened(const ConstView<Cpu>& from) const {
    auto to = buffer<To>(count, size);
    std::int64_t at = 0;
    for (const auto& run : runs()) {
      widen(from, run.row * stride + head * size, stride, run.length, size, to.data() + at * size);
      at += run.length;
    }
    return to;
  }
  void narrowed(const std::vector<A>& from, const View<Cpu>& to) const {
    std::int64_t at = 0;
    for (const auto& run : runs()) {
      narrow(run, from.data() + at * size, size, to, run.row * stride + head * size, stride);
      at += run.length;
    }
  }
  /// Returns the first elements of a block of scores or gradients as factors.
  [[nodiscard]] const Factor* factors(const std::vector<A>& from, std::int64_t elements) {
    return cpu::widened<Factor>(from.data(), elements, rounded.data());
  }
  /// Calls body(head of q, block of queries) in order, for all heads of q that share these keys. The queries are in q.
  template <class Body>
  void for_queries(const ConstView<Cpu>& from, Body body) {
    const std::int64_t sharing = options.sharing(), q_stride = options.stride(from.columns());
    for (auto at = head * sharing; at < (head + 1) * sharing; ++at)
      for (auto rest : queries())
        while (rest.rows > 0) {
          auto block = rest;
          if (rest.length > query_block) block.rows = block.length = query_block;
          widen(from, block.row * q_stride + at * size, q_stride, block.length, size, q.data());
          body(at, block);
          rest = {rest.row + block.rows, rest.rows - block.rows, rest.length - block.length,
                  rest.position + block.rows};
        }
  }
  /// Calls body(block, first, seen) for each block of scores, of the keys that a block of queries attends to. The block
  /// of keys begins at key `first`; the queries attend to at most `seen` of its keys.
  template <class Body>
  void for_blocks(std::int64_t of_head, const TokenRun& of, Body body) {
    ScoreBlock block{parts, options, of_head, of.row, of.position};
    std::int64_t first = 0;
    for (const auto& run : runs())
      for (std::int64_t at = 0; at < run.length; at += block.keys, first += block.keys) {
        block.first_key = run.position + at;
        block.keys = std::min(key_block, run.length - at);
        const auto seen = of.length == 0 ? 0 : block.seen(of.length - 1);
        if (seen == 0) continue;
        serial_gemm<E>(false, true, of.length, seen, size, scale(), q.data(),
                       k.data() + first * size, 0, scores.data());
        body(block, first, seen);
      }
  }
};

/// Calls body(KeyHead) for all key heads of all samples, in parallel.
template <class E, class Body>
void for_key_heads(Cpu& dev, ConstView<Cpu> k, ConstView<Cpu> v, const AttentionParts<Cpu>& parts,
                   const AttentionOptions& options, Body body) {
  const auto heads = options.heads / options.sharing();
  dev.for_tiles(std::ssize(parts.keys) * heads, [&](std::int64_t task) {
    using Factor = Loaded<E>;
    KeyHead<E> keys{parts,
                    options,
                    as_size(task / heads),
                    task % heads,
                    k.columns() / heads,
                    options.stride(k.columns())};
    for (const auto& run : keys.queries())
      keys.high = std::max(keys.high, std::min(query_block, run.length));
    for (const auto& run : keys.runs()) {
      keys.wide = std::max(keys.wide, std::min(key_block, run.length));
      keys.count += run.length;
    }
    keys.k = keys.template widened<Factor>(k);
    keys.v = keys.template widened<Factor>(v);
    keys.q = keys.template buffer<Factor>(keys.high, keys.size);
    keys.scores = keys.buffer(keys.high, keys.wide);
    keys.rounded = keys.template buffer<Factor>(is_pair<E> ? keys.high : 0, keys.wide);
    body(keys);
  });
}

/// The online softmax of one block of queries. y [queries, size] sums the values of the keys so far, each weighted by
/// e^(score - most). `sum` is the sum of these weights, and `most` the largest score.
template <class A>
struct OnlineSoftmax {
  std::vector<A> y, most, sum;

  /// Replaces a row of scores by weights with dropout applied. Updates the query's maximum and sum, and rescales its y.
  void add(const ScoreBlock& block, std::int64_t query, std::int64_t width, std::int64_t size,
           A* row) {
    const auto seen = block.seen(query), at = query * size;
    std::fill(row + seen, row + width, A(0));
    if (seen == 0) return;
    A& top = most[as_size(query)];
    A& total = sum[as_size(query)];
    const A higher = std::max(top, largest<A>(seen, [=](std::int64_t j) { return row[j]; }));
    if (higher < std::numeric_limits<A>::lowest()) return std::fill(row, row + seen, A(0));
    for_vectors(
        seen, row, [=](auto score) { return fast_exp(score - higher); }, row);
    const A more = lane_sum<A>(seen, [=](std::int64_t j) { return row[j]; });
    if (higher != top) {
      const A shrinks = fast_exp(top - higher);
      total *= shrinks;
      for (auto c = at; c < at + size; ++c) y[as_size(c)] *= shrinks;
      top = higher;
    }
    total += more;
    if (block.options.dropout == 0) return;
    const A scale = static_cast<A>(1.0 / (1.0 - block.options.dropout));
    block.for_kept_keys(query,
                        [=](std::int64_t j, bool keep) { row[j] = keep ? row[j] * scale : A(0); });
  }
  /// Finishes: y becomes the result, and `sum` the logsumexp of the scores.
  void end(std::int64_t queries, std::int64_t size) {
    for (std::int64_t i = 0; i < queries; ++i) {
      A& total = sum[as_size(i)];
      const A factor = A(1) / total;
      for (auto c = i * size; c < (i + 1) * size; ++c) y[as_size(c)] *= factor;
      total = most[as_size(i)] + std::log(total);
    }
  }
};

/// Replaces scores by probabilities after dropout, and gradients of probabilities by gradients of scores. With
/// probabilities p and scaled dropout mask m, y = (p m) v. Hence dv = (p m)^T dy and ds = p (m (dy v^T) - dy . y),
/// because sum_j p m (dy v^T) = dy . y for each query. inner: dy . y.
template <class A>
void score_gradients(const ScoreBlock& block, std::int64_t query, std::int64_t width, A logsumexp,
                     A inner, A* row, A* gradients) {
  const auto seen = block.seen(query);
  std::fill(row + seen, row + width, A(0));
  std::fill(gradients + seen, gradients + width, A(0));
  for_vectors(
      seen, row, [=](auto score) { return fast_exp(score - logsumexp); }, row);
  if (block.options.dropout > 0) {
    const A scale = static_cast<A>(1.0 / (1.0 - block.options.dropout));
    block.for_kept_keys(query, [=](std::int64_t j, bool keep) {
      const A mask = keep ? scale : A(0);
      gradients[j] = row[j] * (mask * gradients[j] - inner);
      row[j] *= mask;
    });
  } else {
    for (std::int64_t j = 0; j < seen; ++j) gradients[j] = row[j] * (gradients[j] - inner);
  }
}

/// Returns parts that hold all tokens of all samples. Throws Error if offsets or lengths do not fit the rows.
[[nodiscard]] inline AttentionParts<Cpu> whole_samples(const Sequences<Cpu>& sequences,
                                                       std::int64_t rows) {
  const auto* offsets = sequences.offsets.data<std::int32_t>();
  const auto* lengths = sequences.lengths.data<std::int32_t>();
  const auto samples = sequences.lengths.count();
  check(offsets[0] == 0 && offsets[samples] == rows, "attention: the samples own rows [",
        offsets[0], ", ", offsets[samples], "), not all ", rows);
  AttentionParts<Cpu> parts{{}, {}, sequences.row_numbers, sequences.max_length};
  for (std::int64_t n = 0; n < samples; ++n) {
    check(offsets[n] >= 0 && lengths[n] >= 0 && offsets[n] + lengths[n] <= offsets[n + 1] &&
              offsets[n + 1] <= rows && lengths[n] <= sequences.max_length,
          "attention: sample ", n, " of length ", lengths[n], " does not fit its rows [",
          offsets[n], ", ", offsets[n + 1], ") of ", rows, " or the longest length ",
          sequences.max_length);
    parts.queries.push_back({TokenRun{offsets[n], offsets[n + 1] - offsets[n], lengths[n], 0}});
  }
  parts.keys = parts.queries;
  return parts;
}

}  // namespace dhp::detail::cpu

namespace dhp::detail {

void attend_to_part_forward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> q, ConstView<Cpu> k,
                               ConstView<Cpu> v, const AttentionParts<Cpu>& parts,
                               const AttentionOptions& options, View<Cpu> y, View<Cpu> logsumexp) {
  const auto attend = [&]<class E>(cpu::KeyHead<E>& keys) {
    using A = cpu::Sum<E>;
    const auto size = keys.size;
    cpu::OnlineSoftmax<A> state{keys.buffer(keys.high, size), keys.buffer(keys.high, 1),
                                keys.buffer(keys.high, 1)};
    keys.for_queries(q, [&](std::int64_t head, const TokenRun& of) {
      const auto out = of.row * y.columns() + head * size, sums = head * q.rows() + of.row;
      if (parts.more) {
        cpu::widen(y, out, y.columns(), of.length, size, state.y.data());
        cpu::widen(logsumexp, sums, 1, of.length, 1, state.most.data());
      } else {
        std::fill(state.y.begin(), state.y.end(), A(0));
        std::fill(state.most.begin(), state.most.end(), -std::numeric_limits<A>::infinity());
      }
      std::fill(state.sum.begin(), state.sum.end(), A(parts.more ? 1 : 0));
      keys.for_blocks(head, of, [&](const auto& block, std::int64_t key, std::int64_t seen) {
        for (std::int64_t i = 0; i < of.length; ++i)
          state.add(block, i, seen, size, keys.scores.data() + i * seen);
        cpu::serial_gemm<E>(false, false, of.length, size, seen, 1,
                            keys.factors(keys.scores, of.length * seen), keys.v.data() + key * size,
                            1, state.y.data());
      });
      state.end(of.length, size);
      cpu::narrow(of, state.y.data(), size, y, out, y.columns());
      cpu::narrow(of, state.sum.data(), 1, logsumexp, sums, 1);
    });
  };
  cpu::visit_attention_products(dev, q.dtype(), [&]<class E>(TypeTag<E>) {
    cpu::for_key_heads<E>(dev, k, v, parts, options, attend);
  });
}
void attend_to_part_backward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> dy, ConstView<Cpu> q,
                                ConstView<Cpu> k, ConstView<Cpu> v, ConstView<Cpu> y,
                                ConstView<Cpu> logsumexp, const AttentionParts<Cpu>& parts,
                                const AttentionOptions& options, View<Cpu> dq, View<Cpu> dk,
                                View<Cpu> dv) {
  const auto attend = [&]<class E>(cpu::KeyHead<E>& keys) {
    using A = cpu::Sum<E>;
    using Factor = cpu::Loaded<E>;
    const auto size = keys.size, stride = options.stride(q.columns());
    auto block_dy = keys.template buffer<Factor>(keys.high, size);
    auto block_y = keys.buffer(keys.high, size), block_dq = block_y;
    auto gradients = keys.scores;
    auto inner = keys.buffer(keys.high, 1);
    auto all_dk = parts.more ? keys.widened(dk) : keys.buffer(keys.count, size);
    auto all_dv = parts.more ? keys.widened(dv) : keys.buffer(keys.count, size);
    keys.for_queries(q, [&](std::int64_t head, const TokenRun& of) {
      const auto at = of.row * y.columns() + head * size, out = of.row * stride + head * size;
      const A* const sums = logsumexp.data<A>() + head * q.rows() + of.row;
      cpu::widen(y, at, y.columns(), of.length, size, block_y.data());
      cpu::widen(dy, at, y.columns(), of.length, size, block_dy.data());
      if (parts.more) cpu::widen(dq, out, stride, of.length, size, block_dq.data());
      else std::fill(block_dq.begin(), block_dq.end(), A(0));
      for (std::int64_t i = 0; i < of.length; ++i)
        inner[as_size(i)] = cpu::lane_sum<A>(
            size, [dy_i = block_dy.data() + i * size, y_i = block_y.data() + i * size](auto c) {
              return static_cast<A>(dy_i[c]) * y_i[c];
            });
      keys.for_blocks(head, of, [&](const auto& block, std::int64_t key, std::int64_t seen) {
        cpu::serial_gemm<E>(false, true, of.length, seen, size, 1, block_dy.data(),
                            keys.v.data() + key * size, 0, gradients.data());
        for (std::int64_t i = 0; i < of.length; ++i)
          cpu::score_gradients(block, i, seen, sums[i], inner[as_size(i)],
                               keys.scores.data() + i * seen, gradients.data() + i * seen);
        cpu::serial_gemm<E>(true, false, seen, size, of.length, 1,
                            keys.factors(keys.scores, of.length * seen), block_dy.data(), 1,
                            all_dv.data() + key * size);
        const Factor* const factors = keys.factors(gradients, of.length * seen);
        cpu::serial_gemm<E>(false, false, of.length, size, seen, keys.scale(), factors,
                            keys.k.data() + key * size, 1, block_dq.data());
        cpu::serial_gemm<E>(true, false, seen, size, of.length, keys.scale(), factors,
                            keys.q.data(), 1, all_dk.data() + key * size);
      });
      cpu::narrow(of, block_dq.data(), size, dq, out, stride);
    });
    keys.narrowed(all_dk, dk);
    keys.narrowed(all_dv, dv);
  };
  cpu::visit_attention_products(dev, q.dtype(), [&]<class E>(TypeTag<E>) {
    cpu::for_key_heads<E>(dev, k, v, parts, options, attend);
  });
}
void attention_forward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> q, ConstView<Cpu> k,
                          ConstView<Cpu> v, const Sequences<Cpu>& sequences,
                          const AttentionOptions& options, View<Cpu> y, View<Cpu> logsumexp) {
  attend_to_part_forward_on(dev, q, k, v, cpu::whole_samples(sequences, q.rows()), options, y,
                            logsumexp);
}
void attention_backward_on(std::same_as<Cpu> auto& dev, ConstView<Cpu> dy, ConstView<Cpu> q,
                           ConstView<Cpu> k, ConstView<Cpu> v, ConstView<Cpu> y,
                           ConstView<Cpu> logsumexp, const Sequences<Cpu>& sequences,
                           const AttentionOptions& options, View<Cpu> dq, View<Cpu> dk,
                           View<Cpu> dv) {
  attend_to_part_backward_on(dev, dy, q, k, v, y, logsumexp,
                             cpu::whole_samples(sequences, q.rows()), options, dq, dk, dv);
}

}  // namespace dhp::detail
