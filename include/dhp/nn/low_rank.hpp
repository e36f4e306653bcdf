// LowRank: the adapter of a linear layer (Hu et al. 2021, "LoRA", section 4.1): y += (alpha / r) B A dropout(x). A [r,
// in] and B [out, r] are trained, usually with frozen base weights. B starts at zero, so at first the layer's output is
// unchanged. The factors follow the layer's placement: by rows, A is split and B replicated; by columns, heads or
// words, B is split and A replicated. A sum [rows, r] over the ranks gives replicated factors equal gradients.
#pragma once

#include <dhp/core/append.hpp>
#include <dhp/nn/dropout.hpp>
#include <dhp/ops/gemm.hpp>
#include <dhp/ops/rows.hpp>

#include <string>
#include <utility>

namespace dhp::detail {

template <class Dev>
class LowRank final : public Adapter<Dev> {
 public:
  /// Makes the parameters "name.lora_A.weight" and "name.lora_B.weight".
  LowRank(ModelBuilder<Dev>& build, const std::string& name, const ParameterSpec& weight)
      : by_rows_(weight.placement == Placement::rows),
        scale_(build.low_rank().scale()),
        columns_(weight.shape[1]),
        dropout_(build, build.low_rank().dropout, {}),
        shares_(build.row_shares()),
        sum_(build.sum_of_pieces(weight.placement)) {
    const auto rank = build.low_rank().rank;
    check(rank >= 1 && rank <= std::min(weight.shape[0], weight.shape[1]), "the adapter of ", name,
          " has rank ", rank, ", and the layer's weight is ", weight.shape,
          "; choose a rank from 1 to the smaller of the two");
    constexpr auto whole = Placement::replicated;
    a_ = build.pieces({.name = name + ".lora_A.weight",
                       .shape = {rank, weight.shape[1]},
                       .init = linear_uniform(weight.shape[1])},
                      by_rows_ ? weight.placement : whole, {.rows = 1});
    b_ = build.pieces({.name = name + ".lora_B.weight", .shape = {weight.shape[0], rank}},
                      by_rows_ ? whole : weight.placement, {.columns = 0, .heads = 0, .words = 0});
  }

  void forward(Dev& dev, ConstView<Dev> x, View<Dev> y, Tape<Dev>& tape) override {
    const auto in = dropped(dev, x, tape);
    if (in) x = in.view();
    const auto type = x.dtype();
    const auto rows = matrix(x, a_, 0).rows();
    const auto product = [&](int at, View<Dev> out, double) {
      gemm(dev, matrix(x, a_, at), parameter_at(a_, at)->value, out,
           {.transpose_b = true, .alpha = scale_});
    };
    const Shape shape{rows, parameter_at(a_, 0)->spec.shape[0]};
    auto inner = by_rows_ ? sum_(dev, type, shape, {}, product) : Tensor<Dev>(dev, type, shape);
    if (!by_rows_) product(0, inner.mut(), 0);
    const auto own = by_rows_ ? shares_.local(rows) : Range{0, rows};
    for (int at = 0; at < count(b_); ++at)
      gemm(dev, inner.view().slice(own), parameter_at(b_, at)->value, matrix(y, b_, at),
           {.transpose_b = true, .beta = 1, .padded = true});
    tape.push(std::move(inner));
  }

  void backward(Dev& dev, const Tensor<Dev>& x, const Tensor<Dev>& dy, View<Dev> dx,
                Tape<Dev>& tape) override {
    auto inner = tape.pop();
    const auto product = [&](int at, View<Dev> out, double) {
      gemm(dev, matrix(dy.view(), b_, at), parameter_at(b_, at)->value, out,
           {.alpha = scale_, .padded = true});
    };
    auto dinner = by_rows_ ? Tensor<Dev>(dev, inner.dtype(), inner.shape())
                           : sum_(dev, inner.dtype(), inner.shape(), {}, product);
    if (by_rows_) product(0, dinner.mut(), 0);
    auto in = dropped(dev, x.view(), tape);
    const auto rows = dinner.shape()[0];
    const auto own = by_rows_ ? Range{0, rows} : shares_.local(rows);
    const auto from = dinner.view().slice(own);
    for (int at = 0; at < count(a_); ++at) {
      const auto to = matrix(dx, a_, at);
      const auto& factor = parameter_at(a_, at)->value;
      if (!in) {
        gemm(dev, from, factor, to, {.beta = 1});
        continue;
      }
      Tensor<Dev> of_dropped(dev, to.dtype(), to.shape());
      gemm(dev, from, factor, of_dropped.mut());
      drop(dev, of_dropped.view(), sliced(dropout_.rows(tape, rows), own), at, tape,
           of_dropped.mut());
      add(dev, to, of_dropped.view(), to);
    }
    if (!in) in = x.share();
    if (!is_trained(a_) && !is_trained(b_)) return;
    tape.weight_gradient(
        dev, [a = a_, b = b_, in = std::move(in), dy = dy.share(), inner = std::move(inner),
              dinner = std::move(dinner), groups = tape.row_groups()](Dev& device) {
          for_row_groups(groups, inner.rows(), [&](Range group) {
            const auto some = [&](auto view) { return view.slice(group.first, group.last); };
            for (int at = 0; at < count(b); ++at)
              parameter_at(b, at)->accumulate(device, [&](View<Dev> gradient, double beta) {
                gemm(device, some(matrix(dy.view(), b, at)), some(inner.view()), gradient,
                     {.transpose_a = true, .beta = beta, .padded = true});
              });
            for (int at = 0; at < count(a); ++at)
              parameter_at(a, at)->accumulate(device, [&](View<Dev> gradient, double beta) {
                gemm(device, some(dinner.view()), some(matrix(in.view(), a, at)), gradient,
                     {.transpose_a = true, .beta = beta});
              });
          });
        });
  }

  [[nodiscard]] double flops(std::int64_t rows) const override {
    std::int64_t weights = 0;
    for (const auto* list : {&a_, &b_})
      for (const auto& each : *list) weights += each->spec.local_shape().count();
    return 2.0 * static_cast<double>(rows * weights);
  }
  void parameters(ParameterList<Dev>& out) const override {
    detail::append(out, a_);
    detail::append(out, b_);
  }

 private:
  [[nodiscard]] static int count(const ParameterList<Dev>& pieces) {
    return static_cast<int>(pieces.size());
  }
  [[nodiscard]] static const Parameter<Dev>& parameter_at(const ParameterList<Dev>& pieces,
                                                          int at) {
    return pieces[as_size(at)];
  }
  template <class AnyView>
  [[nodiscard]] static AnyView matrix(AnyView all, const ParameterList<Dev>& pieces, int at) {
    return as_matrix(detail::piece(all, count(pieces), at));
  }
  /// Returns x after dropout, or an empty tensor if dropout is inactive.
  [[nodiscard]] Tensor<Dev> dropped(Dev& dev, ConstView<Dev> x, const Tape<Dev>& tape) const {
    if (!dropout_.active(tape)) return {};
    Tensor<Dev> result(dev, x.dtype(), x.shape());
    for (int at = 0; at < count(a_); ++at) {
      const auto part = matrix(x, a_, at);
      drop(dev, part, dropout_.rows(tape, part.rows()), at, tape, matrix(result.mut(), a_, at));
    }
    return result;
  }
  void drop(Dev& dev, ConstView<Dev> x, const RowNumbers<Dev>& rows, int at, const Tape<Dev>& tape,
            View<Dev> y) const {
    auto options = dropout_.options(tape, columns_);
    options.first_column = parameter_at(a_, at)->spec.part.first;
    dropout(dev, x, rows, options, y);
  }

  bool by_rows_;
  double scale_;
  std::int64_t columns_;  // inputs of the whole layer
  DropoutUse<Dev> dropout_;
  RowShares<Dev> shares_;     // by rows: the row shares of y; otherwise the row shares of dx
  ParameterList<Dev> a_, b_;  // this rank's pieces
  GroupSum<Dev> sum_;         // by rows: sums A x; otherwise sums the gradient of A x
};

template <class Dev>
std::shared_ptr<Adapter<Dev>> make_low_rank(ModelBuilder<Dev>& build, const std::string& name,
                                            const ParameterSpec& weight) {
  return std::make_shared<LowRank<Dev>>(build, name, weight);
}

}  // namespace dhp::detail
