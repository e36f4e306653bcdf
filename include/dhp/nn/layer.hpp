// A layer: forward pushes on the tape what backward needs; backward pops it, adds weight gradients and
// returns the gradient of the input. Containers hold layers type-erased, so that cutting a model into
// stages is splitting a vector.
#pragma once

#include <dhp/nn/build.hpp>
#include <dhp/tensor/tape.hpp>

#include <concepts>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

/// output_shape: shape of forward's result for an input shape and a batch, without computing anything.
/// flops: multiplications and additions of one forward pass; stages are cut by it.
template <class L, class Dev>
concept Layer = requires(L& layer, const L& fixed, Dev& dev, Tensor<Dev> x, Tape<Dev>& tape,
                         const Shape& in, const MicroBatch<Dev>& batch,
                         ParameterList<Dev>& parameters) {
  { layer.forward(dev, std::move(x), tape) } -> std::same_as<Tensor<Dev>>;
  { layer.backward(dev, std::move(x), tape) } -> std::same_as<Tensor<Dev>>;
  { fixed.output_shape(in, batch) } -> std::same_as<Shape>;
  { fixed.flops(in, batch) } -> std::same_as<double>;
  {fixed.parameters(parameters)};
};

/// What layers without weights and with y shaped like x can inherit.
template <class Dev>
struct ElementwiseLayer {
  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>&) const { return in; }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>&) const {
    return static_cast<double>(in.count());
  }
  void parameters(ParameterList<Dev>&) const {}
};

/// A layer of any type, with a name for messages.
template <class Dev>
class AnyLayer {
 public:
  template <Layer<Dev> L>
  AnyLayer(std::string name, L layer)
      : name_(std::move(name)), model_(std::make_unique<Model<L>>(std::move(layer))) {}

  [[nodiscard]] const std::string& name() const { return name_; }

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    return model_->forward(dev, std::move(x), tape);
  }
  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    return model_->backward(dev, std::move(dy), tape);
  }
  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>& batch) const {
    return model_->output_shape(in, batch);
  }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>& batch) const {
    return model_->flops(in, batch);
  }
  void parameters(ParameterList<Dev>& out) const { model_->parameters(out); }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual Tensor<Dev> forward(Dev&, Tensor<Dev>, Tape<Dev>&) = 0;
    virtual Tensor<Dev> backward(Dev&, Tensor<Dev>, Tape<Dev>&) = 0;
    virtual Shape output_shape(const Shape&, const MicroBatch<Dev>&) const = 0;
    virtual double flops(const Shape&, const MicroBatch<Dev>&) const = 0;
    virtual void parameters(ParameterList<Dev>&) const = 0;
  };
  template <class L>
  struct Model final : Base {
    explicit Model(L held) : layer(std::move(held)) {}
    Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) override {
      return layer.forward(dev, std::move(x), tape);
    }
    Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) override {
      return layer.backward(dev, std::move(dy), tape);
    }
    Shape output_shape(const Shape& in, const MicroBatch<Dev>& batch) const override {
      return layer.output_shape(in, batch);
    }
    double flops(const Shape& in, const MicroBatch<Dev>& batch) const override {
      return layer.flops(in, batch);
    }
    void parameters(ParameterList<Dev>& out) const override { layer.parameters(out); }
    L layer;
  };
  std::string name_;
  std::unique_ptr<Base> model_;
};

}  // namespace dhp
