// LowRank: the adapter of a linear layer (Hu et al. 2021, "LoRA", section 4.1): y += (alpha / r) B A dropout(x). A
// [r, in] and B [out, r] are trained, usually with frozen base weights. B starts at zero, so the layer's output is
// unchanged at first. Its factors are placed as the layer is: by rows, A is split and B replicated; by columns, heads or
// words, B is split and A replicated. Replicated factors get equal gradients from a sum of [rows, r].
#pragma once

#include <dhp/nn/dropout.hpp>
#include <dhp/ops/gemm.hpp>

#include <string>
#include <utility>

namespace dhp {

template <class Dev>
class LowRank final : public detail::Adapter<Dev> {
 public:
  /// Parameters "name.lora_A.weight" and "name.lora_B.weight".
  LowRank(ModelBuilder<Dev>& build, const std::string& name, const ParameterSpec& weight)
      : by_rows_(weight.placement == Placement::rows),
        scale_(build.low_rank().scale()),
        first_column_(by_rows_ ? weight.part.first : 0),
        columns_(weight.shape[1]),
        adds_(!by_rows_ || build.tensor.rank() == 0),
        dropout_(build, build.low_rank().dropout) {
    const auto rank = build.low_rank().rank;
    check(rank >= 1 && rank <= std::min(weight.shape[0], weight.shape[1]), "the adapter of ", name,
          " has rank ", rank, ", and the layer's weight is ", weight.shape,
          "; choose a rank from 1 to the smaller of the two");
    constexpr auto whole = Placement::replicated;
    a_ = build.parameter({.name = name + ".lora_A.weight",
                          .shape = {rank, weight.shape[1]},
                          .init = linear_uniform(weight.shape[1])},
                         by_rows_ ? weight.placement : whole, {.rows = 1});
    b_ = build.parameter({.name = name + ".lora_B.weight", .shape = {weight.shape[0], rank}},
                         by_rows_ ? whole : weight.placement,
                         {.columns = 0, .heads = 0, .words = 0});
    if (by_rows_) inner_sum_ = GroupSum<Dev>(build.tensor);
    else if (weight.placement != whole) gradient_sum_ = GroupSum<Dev>(build.tensor);
  }

  void forward(Dev& dev, ConstView<Dev> x, View<Dev> y, Tape<Dev>& tape) override {
    Tensor<Dev> inner(dev, x.dtype(), {x.rows(), a_->value.shape()[0]});
    const auto in = dropped(dev, x, tape);
    gemm(dev, in ? in.view() : x, a_->value, inner.mut(), {.transpose_b = true, .alpha = scale_});
    inner_sum_(dev, inner);
    if (adds_) gemm(dev, inner.view(), b_->value, y, {.transpose_b = true, .beta = 1});
    tape.push(std::move(inner));
  }

  void backward(Dev& dev, const Tensor<Dev>& x, const Tensor<Dev>& dy, View<Dev> dx,
                Tape<Dev>& tape) override {
    auto inner = tape.pop();
    const auto out = detail::as_matrix(dy.view());
    Tensor<Dev> dinner(dev, inner.dtype(), inner.shape());
    gemm(dev, out, b_->value, dinner.mut(), {.alpha = scale_});
    auto in = dropped(dev, detail::as_matrix(x.view()), tape);
    if (in) {
      Tensor<Dev> of_dropped(dev, in.dtype(), in.shape());
      gemm(dev, dinner.view(), a_->value, of_dropped.mut());
      drop(dev, of_dropped.view(), of_dropped.mut(), tape);
      add(dev, dx, of_dropped.view(), dx);
    } else {
      gemm(dev, dinner.view(), a_->value, dx, {.beta = 1});
      in = x.share();
    }
    gradient_sum_(dev, dinner);
    if (!is_trained<Dev>({a_, b_})) return;
    tape.weight_gradient(dev, [a = a_, b = b_, in = std::move(in), dy = dy.share(),
                               inner = std::move(inner), dinner = std::move(dinner)](Dev& device) {
      b->accumulate(device, [&](View<Dev> gradient, double beta) {
        gemm(device, detail::as_matrix(dy.view()), inner.view(), gradient,
             {.transpose_a = true, .beta = beta});
      });
      a->accumulate(device, [&](View<Dev> gradient, double beta) {
        gemm(device, dinner.view(), detail::as_matrix(in.view()), gradient,
             {.transpose_a = true, .beta = beta});
      });
    });
  }

  [[nodiscard]] double flops(std::int64_t rows) const override {
    const auto weights = a_->spec.local_shape().count() + b_->spec.local_shape().count();
    return 2.0 * static_cast<double>(rows * weights);
  }
  void parameters(ParameterList<Dev>& out) const override {
    out.push_back(a_);
    out.push_back(b_);
  }

 private:
  /// Empty without dropout.
  [[nodiscard]] Tensor<Dev> dropped(Dev& dev, ConstView<Dev> x, const Tape<Dev>& tape) const {
    if (!dropout_.active(tape)) return {};
    Tensor<Dev> made(dev, x.dtype(), x.shape());
    drop(dev, x, made.mut(), tape);
    return made;
  }
  void drop(Dev& dev, ConstView<Dev> x, View<Dev> y, const Tape<Dev>& tape) const {
    auto options = dropout_.options(tape, columns_);
    options.first_column = first_column_;
    dropout(dev, x, dropout_.rows(tape, x.rows()), options, y);
  }

  bool by_rows_;
  double scale_;
  std::int64_t first_column_, columns_;  // of the whole layer's inputs
  bool adds_;                            // this rank's y has the adapter's part
  detail::DropoutUse<Dev> dropout_;
  Parameter<Dev> a_, b_;
  GroupSum<Dev> inner_sum_, gradient_sum_;
};

template <class Dev>
std::shared_ptr<detail::Adapter<Dev>> detail::make_low_rank(ModelBuilder<Dev>& build,
                                                            const std::string& name,
                                                            const ParameterSpec& weight) {
  return std::make_shared<LowRank<Dev>>(build, name, weight);
}

}  // namespace dhp
