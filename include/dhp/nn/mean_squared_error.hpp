// Mean squared error against the side input "targets", counted per element: "elements".
#pragma once

#include <dhp/nn/loss.hpp>
#include <dhp/ops/elementwise.hpp>
#include <dhp/ops/reduce.hpp>

namespace dhp {

template <class Dev>
class MeanSquaredError {
 public:
  [[nodiscard]] std::vector<std::string> term_names() const { return {"elements"}; }

  std::vector<LossTerm> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    const auto& targets = tape.batch().at("targets");
    check(targets.shape() == x.shape(), "mean squared error: targets ", targets.shape(),
          " do not match the output ", x.shape());
    auto difference = clone(dev, x.view());
    axpy(dev, -1.0, targets.view(), difference.mut());
    Tensor<Dev> sum(dev, DType::f64, {1});
    sum_of_squares(dev, difference.view(), sum.mut());
    const LossTerm term{.sum = sum.template to_host<double>(dev)[0],
                        .count = tape.batch().count_of("elements")};
    tape.push(std::move(difference));
    return {term};
  }

  Tensor<Dev> backward(Dev& dev, const std::vector<double>& scales, Tape<Dev>& tape) {
    auto dx = tape.pop();
    scale(dev, 2 * scales.at(0), dx.mut());
    return dx;
  }

  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>&) const {
    return 3 * static_cast<double>(in.count());
  }
  void parameters(ParameterList<Dev>&) const {}
};

}  // namespace dhp
