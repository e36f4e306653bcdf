// Mean squared error between x and the side input "targets"; its term counts "elements".
#pragma once

#include <dhp/nn/loss.hpp>
#include <dhp/ops/elementwise.hpp>
#include <dhp/ops/reduce.hpp>

namespace dhp {

/// x and "targets" have the same shape, [samples, ..].
template <class Dev>
class MeanSquaredError {
 public:
  [[nodiscard]] std::vector<std::string> term_names() const { return {"elements"}; }

  void forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape, View<Dev> totals) {
    const auto& targets = tape.batch().at("targets");
    check(targets.shape() == x.shape(), "mean squared error: targets ", targets.shape(),
          " do not match the output ", x.shape());
    auto difference = clone(dev, x.view());
    axpy(dev, -1.0, targets.view(), difference.mut());
    const auto fields = totals.as({loss_fields});
    fill(dev, fields, 0);
    sum_of_squares(dev, difference.view(), fields.slice(0, 1));
    fill(dev, fields.slice(1, 2), static_cast<double>(difference.count()));
    tape.push(std::move(difference));
  }

  Tensor<Dev> predict(Dev&, Tensor<Dev> x, Tape<Dev>&) { return x; }

  Tensor<Dev> backward(Dev& dev, ConstView<Dev> scales, Tape<Dev>& tape) {
    auto dx = tape.pop();
    scale(dev, 2.0, dx.mut(), scales.slice(0, 1));
    return dx;
  }

  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>&) const {
    return 3 * static_cast<double>(in.count());
  }
  void parameters(ParameterList<Dev>&) const {}
};

}  // namespace dhp
