// Helpers of attention tests: the samples of a batch, q, k and v (or their gradients) as columns of one matrix, and both
// passes.
#pragma once

#include <dhp/ops/attention.hpp>
#include <dhp/ops/rows.hpp>
#include <tests/support/tensors.hpp>

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

template <class Dev>
class Thirds {
 public:
  Tensor<Dev> all;  ///< [R, 3 C]

  Thirds(Dev& dev, DType type, const Shape& part)
      : all(dev, type, {part[0], 3 * part[1]}), part_(part) {}
  /// q, k or v as attention takes it: a view with row_stride 3 C.
  [[nodiscard]] View<Dev> at(int which) {
    return {all.mut().bytes() + static_cast<std::size_t>(which * part_[1]) * size_of(all.dtype()),
            all.dtype(), part_};
  }
  void put(Dev& dev, const Tensor<Dev>& q, const Tensor<Dev>& k, const Tensor<Dev>& v) {
    std::int64_t to = 0;
    for (const auto* values : {&q, &k, &v}) {
      copy_columns(dev, *values, 0, all.mut(), to, part_[1]);
      to += part_[1];
    }
  }
  [[nodiscard]] Tensor<Dev> take(Dev& dev, int which) const {
    Tensor<Dev> values(dev, all.dtype(), part_);
    copy_columns(dev, all, which * part_[1], values.mut(), 0, part_[1]);
    return values;
  }

 private:
  Shape part_;
};

/// Runs both passes; returns y, dq, dk, dv and logsumexp. With a row stride, q, k, v and their gradients are thirds.
template <class Dev>
std::vector<std::vector<double>> attention_results(Dev& dev, const Sequences<Dev>& samples,
                                                   const AttentionOptions& options,
                                                   const Tensor<Dev>& q, const Tensor<Dev>& k,
                                                   const Tensor<Dev>& v, const Tensor<Dev>& dy) {
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
    Thirds<Dev> in(dev, q.dtype(), q.shape()), out(dev, q.dtype(), q.shape());
    in.put(dev, q, k, v);
    run(in.at(0), in.at(1), in.at(2), out.at(0), out.at(1), out.at(2));
    int which = 0;
    for (auto* const gradient : {&dq, &dk, &dv}) *gradient = out.take(dev, which++);
  }
  std::vector<std::vector<double>> results;
  for (const auto* const one : {&y, &dq, &dk, &dv, &logsumexp})
    results.push_back(widened<Dev>(dev, one->view()));
  return results;
}

}  // namespace tests
