// The layer of lesson 12, whose forward and backward are Eigen expressions.
#pragma once

#include <dhp/dhp.hpp>
#include <dhp/eigen.hpp>

#include <string>
#include <utility>

namespace lesson {

using namespace dhp;
using eigen::columns_of, eigen::rows_of;

/// Y = sin(W X); X and Y have one sample per column. If H splits the layer by columns (of the tensor y), each rank has
/// some rows of W and of Y, and the ranks' gradients of X are summed.
/// lazyProduct suits small matrices; Eigen's `*` also handles large ones in blocks, but takes longer to compile.
class SineLayer {
 public:
  SineLayer(ModelBuilder<Cpu>& build, const std::string& name, std::int64_t in, std::int64_t out) {
    weight_ =
        build.parameter({.name = name, .shape = {out, in}, .init = he_normal(in)}, {.columns = 0});
    if (weight_->spec.placement == Placement::columns) sum_ = GroupSum<Cpu>(build.tensor);
  }
  Tensor<Cpu> forward(Cpu& dev, Tensor<Cpu> x, Tape<Cpu>& tape) {
    const Shape shape{x.rows(), weight_->value.shape()[0]};
    Tensor<Cpu> a(dev, x.dtype(), shape), y(dev, x.dtype(), shape);
    columns_of<double>(a.mut()).noalias() =
        rows_of<double>(weight_->value).lazyProduct(columns_of<double>(x));
    columns_of<double>(y.mut()) = columns_of<double>(a).array().sin();
    tape.push(std::move(x));
    tape.push(std::move(a));
    return y;
  }
  Tensor<Cpu> backward(Cpu& dev, Tensor<Cpu> dy, Tape<Cpu>& tape) {
    const Tensor<Cpu> a = tape.pop();
    Tensor<Cpu> x = tape.pop(), da(dev, dy.dtype(), dy.shape()), dx(dev, x.dtype(), x.shape());
    columns_of<double>(da.mut()) =
        columns_of<double>(dy).array() * columns_of<double>(a).array().cos();
    columns_of<double>(dx.mut()).noalias() =
        rows_of<double>(weight_->value).transpose().lazyProduct(columns_of<double>(da));
    // dW = beta dW + dA X^T, now or when the schedule calls for it. With a beta of 0 dW is not read.
    tape.weight_gradient(dev, [weight = weight_, x = std::move(x), da = std::move(da)](Cpu& later) {
      weight->accumulate(later, [&](View<Cpu> dw, double beta) {
        if (beta == 0) rows_of<double>(dw).setZero();
        rows_of<double>(dw).noalias() +=
            columns_of<double>(da).lazyProduct(columns_of<double>(x).transpose());
      });
    });
    sum_(dev, dx);
    return dx;
  }
  Shape output_shape(const Shape& in, const MicroBatch<Cpu>&) const {
    return {in.rows(), weight_->spec.local_shape()[0]};
  }
  double flops(const Shape& in, const MicroBatch<Cpu>&) const {
    return 2.0 * static_cast<double>(in.rows() * weight_->spec.local_shape().count());
  }
  void parameters(ParameterList<Cpu>& out) const { out.push_back(weight_); }

 private:
  Parameter<Cpu> weight_;
  GroupSum<Cpu> sum_;
};

}  // namespace lesson
