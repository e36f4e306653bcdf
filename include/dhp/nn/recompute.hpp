// recompute(layer) keeps only the layer's input and repeats the forward pass before the backward pass (Chen et al.
// 2016, "Training deep nets with sublinear memory cost"). Dropout masks are the same again, because they depend on
// global numbers. Batch norm adds its statistics only once.
#pragma once

#include <dhp/nn/layer.hpp>

namespace dhp {

namespace detail {
template <class Dev, Layer<Dev> Inner>
class Recompute : public AddsOnto<Dev, Recompute<Dev, Inner>> {
 public:
  explicit Recompute(Inner inner) : inner_(std::move(inner)) {}

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    x.drop_norm();  // the trace for a fused norm would keep another tensor in memory
    tape.push(x.share());
    auto nothing_kept = tape.nested(false, false);
    return inner_.forward(dev, std::move(x), nothing_kept);
  }
  Tensor<Dev> backward_onto(Dev& dev, Tensor<Dev> dy, Tensor<Dev> onto, Tape<Dev>& tape) {
    auto again = tape.nested(true, true);
    (void)inner_.forward(dev, tape.pop(), again);
    auto dx = dhp::backward_onto(dev, inner_, std::move(dy), std::move(onto), again);
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
}  // namespace detail

template <class Dev, Layer<Dev> Inner>
[[nodiscard]] detail::Recompute<Dev, Inner> recompute(Inner inner) {
  return detail::Recompute<Dev, Inner>(std::move(inner));
}

}  // namespace dhp
