// Dropout (Srivastava et al. 2014), scaled in training ("inverted"). backward recomputes the mask.
#pragma once

#include <dhp/nn/layer.hpp>
#include <dhp/ops/dropout.hpp>

namespace dhp {

namespace detail {
/// Returns the global row numbers of an activation, from the side input or, without one, counted from the first sample.
template <class Dev>
[[nodiscard]] RowNumbers<Dev> row_numbers(const Tape<Dev>& tape, std::int64_t rows,
                                          std::string_view side) {
  const auto& batch = tape.batch();
  for (const auto name : {side, std::string_view("sample_numbers")})
    if (batch.has(name) && batch.at(name).count() == rows) return {.index = batch.at(name).view()};
  check(batch.samples > 0 && rows % batch.samples == 0, "dropout: ", rows,
        " rows are not a whole number per sample of ", batch.samples, " samples");
  return {.index = {}, .first = batch.first_sample * (rows / batch.samples)};
}
template <class Dev>
[[nodiscard]] RowNumbers<Dev> sliced(const RowNumbers<Dev>& of, Range rows) {
  if (of.index.empty()) return {.index = {}, .first = of.first + rows.first};
  return {.index = of.index.slice(rows)};
}

/// One use of dropout in a model, with its own random stream.
template <class Dev>
class DropoutUse {
 public:
  /// shares: the share of x's rows on each rank. numbers: name of the side input with the row numbers.
  DropoutUse(ModelBuilder<Dev>& build, double probability, RowShares<Dev> shares,
             std::string numbers = "row_numbers")
      : probability_(probability),
        use_(build.next_use()),
        shares_(std::move(shares)),
        numbers_(std::move(numbers)) {
    check(probability >= 0 && probability < 1, "dropout: the probability must be in [0, 1), got ",
          probability);
  }

  /// Returns false where dropout is the identity: in evaluation or with probability 0.
  [[nodiscard]] bool active(const Tape<Dev>& tape) const {
    return tape.context().training() && probability_ > 0;
  }
  /// Returns the options for rows of `columns` elements; their probability is 0 if dropout is inactive.
  [[nodiscard]] DropoutOptions options(const Tape<Dev>& tape, std::int64_t columns) const {
    if (!active(tape)) return {.total_columns = columns};
    return {.probability = probability_,
            .random = tape.context().random(use_),
            .total_columns = columns};
  }
  [[nodiscard]] RowNumbers<Dev> rows(const Tape<Dev>& tape, std::int64_t rows) const {
    if (!active(tape)) return {};
    const auto all = shares_.all(tape, rows);
    return sliced(row_numbers(tape, all, numbers_), shares_.local(all));
  }

 private:
  double probability_;
  std::uint32_t use_;
  RowShares<Dev> shares_;
  std::string numbers_;
};
}  // namespace detail

/// y has the shape of x, [rows, C]. A row's mask depends on the row's global number.
template <class Dev>
class Dropout : public ElementwiseLayer<Dev> {
 public:
  /// numbers: name of the side input with the rows' global numbers, needed if x has only some of all rows.
  Dropout(ModelBuilder<Dev>& build, double probability, std::string numbers = "row_numbers")
      : use_(build, probability, build.row_shares(), std::move(numbers)) {}

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    return apply(dev, std::move(x), tape);
  }
  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    return apply(dev, std::move(dy), tape);
  }

 private:
  // Returns x * mask / (1 - p); backward applies the same factor to dy.
  Tensor<Dev> apply(Dev& dev, Tensor<Dev> x, const Tape<Dev>& tape) const {
    if (!use_.active(tape)) return x;
    const auto options = use_.options(tape, x.columns());
    const auto rows = use_.rows(tape, x.rows());
    const auto in = x.view();
    auto y = reuse(dev, x);
    dropout(dev, in, rows, options, y.mut());
    return y;
  }

  detail::DropoutUse<Dev> use_;
};

}  // namespace dhp
