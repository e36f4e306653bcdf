// recompute(layer): keeps only the layer's input and computes the rest again in the backward pass (Chen
// et al. 2016, "Training deep nets with sublinear memory cost"). Dropout masks come out the same because
// they are numbered; statistics of batch norm are not added a second time.
#pragma once

#include <dhp/nn/layer.hpp>

namespace dhp {

template <class Dev, Layer<Dev> Inner>
class Recompute {
 public:
  explicit Recompute(Inner inner) : inner_(std::move(inner)) {}

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    tape.push(x.share());
    auto nothing_kept = tape.nested(false, false);
    return inner_.forward(dev, std::move(x), nothing_kept);
  }
  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    auto again = tape.nested(true, true);
    (void)inner_.forward(dev, tape.pop(), again);
    auto dx = inner_.backward(dev, std::move(dy), again);
    again.check_popped({});
    return dx;
  }
  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>& batch) const {
    return inner_.output_shape(in, batch);
  }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>& batch) const {
    return inner_.flops(in, batch);
  }
  void parameters(ParameterList<Dev>& out) const { inner_.parameters(out); }

 private:
  Inner inner_;
};

template <class Dev, Layer<Dev> Inner>
[[nodiscard]] Recompute<Dev, Inner> recompute(Inner inner) {
  return Recompute<Dev, Inner>(std::move(inner));
}

}  // namespace dhp
