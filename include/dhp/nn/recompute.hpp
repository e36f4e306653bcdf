// recompute(layer) keeps only the layer's input and repeats the forward pass before the backward pass (Chen et al.
// 2016, "Training deep nets with sublinear memory cost"). Dropout masks repeat because they are numbered; batch norm
// adds its statistics once.
#pragma once

#include <dhp/nn/layer.hpp>

namespace dhp {

template <class Dev, Layer<Dev> Inner>
class Recompute : public Inner {
 public:
  explicit Recompute(Inner inner) : Inner(std::move(inner)) {}

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    x.drop_norm();  // it keeps a tensor more
    tape.push(x.share());
    auto nothing_kept = tape.nested(false, false);
    return Inner::forward(dev, std::move(x), nothing_kept);
  }
  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    return after_forward(
        dev, tape, [&](Tape<Dev>& again) { return Inner::backward(dev, std::move(dy), again); });
  }
  Tensor<Dev> backward_onto(Dev& dev, Tensor<Dev> dy, Tensor<Dev> onto, Tape<Dev>& tape) {
    return after_forward(dev, tape, [&](Tape<Dev>& again) {
      return dhp::backward_onto<Dev, Inner>(dev, *this, std::move(dy), std::move(onto), again);
    });
  }

 private:
  template <class Backward>
  Tensor<Dev> after_forward(Dev& dev, Tape<Dev>& tape, Backward backward_of) {
    auto again = tape.nested(true, true);
    (void)Inner::forward(dev, tape.pop(), again);
    auto dx = backward_of(again);
    again.check_popped({});
    return dx;
  }
};

template <class Dev, Layer<Dev> Inner>
[[nodiscard]] Recompute<Dev, Inner> recompute(Inner inner) {
  return Recompute<Dev, Inner>(std::move(inner));
}

}  // namespace dhp
