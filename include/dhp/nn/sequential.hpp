// Sequential: applies layers one after the other.
#pragma once

#include <dhp/nn/layer.hpp>

namespace dhp {

/// x is the input of the first layer, y is the output of the last layer. Without layers, y is x.
template <class Dev>
class Sequential : public detail::AddsOnto<Dev, Sequential<Dev>> {
 public:
  Sequential() = default;
  Sequential& add(std::string name, auto layer) {
    layers_.emplace_back(std::move(name), std::move(layer));
    return *this;
  }

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    for (auto& layer : layers_) x = layer.forward(dev, std::move(x), tape);
    return x;
  }
  Tensor<Dev> backward_onto(Dev& dev, Tensor<Dev> dy, Tensor<Dev> onto, Tape<Dev>& tape) {
    if (layers_.empty()) return onto ? sum_of(dev, std::move(dy), std::move(onto)) : std::move(dy);
    for (auto layer = layers_.rbegin(); layer + 1 != layers_.rend(); ++layer)
      dy = layer->backward(dev, std::move(dy), tape);
    return layers_.front().backward_onto(dev, std::move(dy), std::move(onto), tape);
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

}  // namespace dhp
