// Cases of attention on any device. q, k and v (or their gradients) may be columns of one matrix.
#pragma once

#include <dhp/ops/attention.hpp>
#include <dhp/ops/rows.hpp>
#include <tests/support/sides.hpp>

namespace tests {

/// The lengths of the samples, the first row of each, and the number of every row.
template <class Dev>
class Samples : public Sequences<Dev> {
 public:
  using Ints = std::vector<std::int32_t>;
  Samples(Dev& dev, const Ints& firsts, const Ints& tokens, const std::vector<std::int64_t>& rows,
          std::int64_t longest)
      : held_{tensor_of(dev, firsts), tensor_of(dev, tokens), tensor_of(dev, rows)} {
    static_cast<Sequences<Dev>&>(*this) = {held_[0], held_[1], held_[2], longest};
  }
  /// Rows are numbered from first_row on.
  Samples(Dev& dev, const Ints& firsts, const Ints& tokens, std::int64_t first_row = 0)
      : Samples(dev, firsts, tokens, from(first_row, firsts.back()),
                *std::max_element(tokens.begin(), tokens.end())) {}

 private:
  static std::vector<std::int64_t> from(std::int64_t first, std::int32_t count) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(count));
    std::iota(all.begin(), all.end(), first);
    return all;
  }
  std::array<Tensor<Dev>, 3> held_;
};

/// Runs both passes; returns y, dq, dk, dv and logsumexp. With a row stride, q, k, v and their gradients are thirds.
template <class Dev>
Results attention_results(Dev& dev, const Sequences<Dev>& samples, const AttentionOptions& options,
                          const Tensor<Dev>& q, const Tensor<Dev>& k, const Tensor<Dev>& v,
                          const Tensor<Dev>& dy) {
  const auto like = [&](const Tensor<Dev>& x) { return Tensor<Dev>(dev, x.dtype(), x.shape()); };
  auto y = like(q), dq = like(q), dk = like(k), dv = like(v);
  Tensor<Dev> logsumexp(dev, accumulation_type(q.dtype()), {options.heads, q.rows()});
  const auto run = [&](InView<Dev> of_q, InView<Dev> of_k, InView<Dev> of_v, View<Dev> to_q,
                       View<Dev> to_k, View<Dev> to_v) {
    attention_forward(dev, of_q, of_k, of_v, samples, options, y.mut(), logsumexp.mut());
    attention_backward(dev, dy, of_q, of_k, of_v, y, logsumexp, samples, options, to_q, to_k, to_v);
  };
  if (options.row_stride == 0) {
    run(q, k, v, dq.mut(), dk.mut(), dv.mut());
  } else {
    const auto columns = q.columns();
    Tensor<Dev> in(dev, q.dtype(), {q.rows(), 3 * columns}), out(dev, q.dtype(), in.shape());
    const auto third = [&](Tensor<Dev>& all, std::int64_t which) {
      const auto bytes = static_cast<std::size_t>(which * columns) * size_of(all.dtype());
      return View<Dev>(all.mut().bytes() + bytes, all.dtype(), q.shape());
    };
    std::int64_t at = 0;
    for (const auto* const part : {&q, &k, &v})
      copy_columns(dev, *part, 0, in.mut(), columns * at++, columns);
    run(third(in, 0), third(in, 1), third(in, 2), third(out, 0), third(out, 1), third(out, 2));
    at = 0;
    for (auto* const gradient : {&dq, &dk, &dv})
      copy_columns(dev, out, columns * at++, gradient->mut(), 0, columns);
  }
  Results results;
  for (const auto* const one : {&y, &dq, &dk, &dv, &logsumexp})
    results.push_back(widened<Dev>(dev, one->view()));
  return results;
}

struct AttentionCase {
  std::vector<std::int32_t> lengths{};
  std::vector<std::int32_t> padding{};  ///< rows after each sample; empty: none
  int heads = 2;
  int size = 8;
  double dropout = 0;
  int first_head = 0;
  int total_heads = 2;
  bool joined = false;  ///< q, k, v are columns of one matrix
  int key_heads = 0;
  bool causal = false;
  double padding_value = NAN;  ///< of the inputs: dhp's kernels never read it

  [[nodiscard]] AttentionOptions options() const {
    return {.heads = heads,
            .first_head = first_head,
            .total_heads = total_heads,
            .key_heads = key_heads,
            .causal = causal,
            .dropout = dropout,
            .random = {.seed = 5, .series = 3, .use = 9},
            .row_stride = joined ? 3 * heads * size : 0};
  }
  [[nodiscard]] std::int64_t longest() const {
    return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  }
  [[nodiscard]] std::vector<std::int32_t> offsets() const {
    std::vector<std::int32_t> all{0};
    for (std::size_t n = 0; n < lengths.size(); ++n)
      all.push_back(all.back() + lengths[n] + (padding.empty() ? 0 : padding[n]));
    return all;
  }
  /// Returns the number of each row, which padding does not change; -1 for padding.
  [[nodiscard]] std::vector<std::int64_t> numbers() const {
    std::vector<std::int64_t> all;
    for (std::size_t n = 0; n < lengths.size(); ++n) {
      for (std::int64_t at = 0; at < lengths[n]; ++at)
        all.push_back(1000 * static_cast<std::int64_t>(n + 1) + at);
      all.resize(static_cast<std::size_t>(offsets()[n + 1]), -1);
    }
    return all;
  }
  /// Returns random values by row number.
  template <class T>
  [[nodiscard]] std::vector<T> values(std::int64_t columns, std::uint32_t use) const {
    const RandomStream random{.seed = 3, .use = use};
    std::vector<T> made;
    for (const auto number : numbers())
      for (std::int64_t c = 0; c < columns; ++c)
        made.push_back(static_cast<T>(
            number < 0 ? padding_value
                       : random.normal(static_cast<std::uint64_t>(number * columns + c))));
    return made;
  }
  [[nodiscard]] std::int64_t columns() const { return heads * size; }
  [[nodiscard]] std::int64_t key_columns() const { return columns() / options().sharing(); }
};

Results attention_results(auto& side, const AttentionCase& with) {
  const auto numbers = with.numbers();
  const auto of = [&](std::int64_t columns, std::uint32_t use) {
    return side.rounded({std::ssize(numbers), columns},
                        [&]<class T>(TypeTag<T>) { return with.values<T>(columns, use); });
  };
  return attention_results(side.dev,
                           Samples(side.dev, with.offsets(), with.lengths, numbers, with.longest()),
                           with.options(), of(with.columns(), 1), of(with.key_columns(), 2),
                           of(with.key_columns(), 3), of(with.columns(), 4));
}
template <class T, class Dev>
void check_attention(const AttentionCase& with) {
  INFO("with.size ", with.size, " with.dropout ", with.dropout, " key heads ", with.key_heads);
  const auto [got, right] =
      Sides<T, Dev>()([&](auto& side) { return attention_results(side, with); });
  for (std::size_t at = 0; at < 4; ++at) {
    CAPTURE(at);
    CHECK(relative_error(got[at], right[at]) < tolerance<T> * (is_16_bit<T> ? 2 : 4));
  }
  CHECK(relative_error(got[4], right[4]) < 1e-6);
}

}  // namespace tests
