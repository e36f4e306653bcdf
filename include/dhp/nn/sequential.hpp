// Sequential: layers one after the other.
#pragma once

#include <dhp/nn/layer.hpp>
#include <dhp/ops/elementwise.hpp>

namespace dhp {

template <class Dev>
class Sequential {
 public:
  Sequential() = default;
  template <class L>
  Sequential& add(std::string name, L layer) {
    layers_.emplace_back(std::move(name), std::move(layer));
    return *this;
  }

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    for (auto& layer : layers_) x = layer.forward(dev, std::move(x), tape);
    return x;
  }
  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer)
      dy = layer->backward(dev, std::move(dy), tape);
    return dy;
  }
  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>& batch) const {
    Shape shape = in;
    for (const auto& layer : layers_) shape = layer.output_shape(shape, batch);
    return shape;
  }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>& batch) const {
    double total = 0;
    Shape shape = in;
    for (const auto& layer : layers_) {
      total += layer.flops(shape, batch);
      shape = layer.output_shape(shape, batch);
    }
    return total;
  }
  void parameters(ParameterList<Dev>& out) const {
    for (const auto& layer : layers_) layer.parameters(out);
  }

 private:
  std::vector<AnyLayer<Dev>> layers_;
};

/// a + b, in the memory of one that is not shared, if there is one.
template <class Dev>
[[nodiscard]] Tensor<Dev> sum_of(Dev& dev, Tensor<Dev> a, Tensor<Dev> b) {
  if (!a.unique() && b.unique()) std::swap(a, b);
  const auto one = a.view(), other = b.view();
  auto total = reuse(dev, a);
  add(dev, one, other, total.mut());
  return total;
}

}  // namespace dhp
