// A loss is the end of a model. It is layer-like (it may own parameters: BERT's heads), reads its targets
// from the batch, and writes for each of its terms a sum and a count. The value of a term is its sum over
// the *global* batch divided by its count over the global batch: never a mean of means.
#pragma once

#include <dhp/nn/layer.hpp>

#include <memory>
#include <string>
#include <vector>

namespace dhp {

/// One term of the loss of one micro-batch, or of many.
struct LossTerm {
  double sum = 0;            ///< of the loss over the counted tokens or samples
  std::int64_t count = 0;    ///< how many they are
  std::int64_t correct = 0;  ///< of these, predicted right (top-1); counted in evaluation only
  std::int64_t correct_in_five = 0;  ///< label among the five likeliest
  [[nodiscard]] double mean() const { return count == 0 ? 0 : sum / static_cast<double>(count); }
};
/// On the device a term is f64 [loss_fields]: these fields in this order.
inline constexpr std::int64_t loss_fields = 4;

/// term_names: one per term, fixed; counts of each are in MicroBatch::counts under the same name.
/// forward: pushes on the tape, writes every term to totals, f64 [terms, loss_fields] on the device.
/// backward: gradient of the last layer's output for the objective sum_t scales[t] * sum_t; scales, f64
/// [terms] on the device, hold 1 / global count and the loss scale.
/// flops: as of a layer; whoever has the last layers has the loss too.
template <class L, class Dev>
concept Loss = requires(L& loss, const L& fixed, Dev& dev, Tensor<Dev> x, Tape<Dev>& tape,
                        View<Dev> totals, ConstView<Dev> scales, ParameterList<Dev>& parameters,
                        const Shape& in, const MicroBatch<Dev>& batch) {
  { fixed.term_names() } -> std::same_as<std::vector<std::string>>;
  {loss.forward(dev, std::move(x), tape, totals)};
  { loss.backward(dev, scales, tape) } -> std::same_as<Tensor<Dev>>;
  { fixed.flops(in, batch) } -> std::same_as<double>;
  {fixed.parameters(parameters)};
};

template <class Dev>
class AnyLoss {
 public:
  AnyLoss() = default;
  template <Loss<Dev> L>
  AnyLoss(L loss) : model_(std::make_unique<Model<L>>(std::move(loss))) {}

  [[nodiscard]] std::vector<std::string> term_names() const { return model_->term_names(); }
  void forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape, View<Dev> totals) {
    model_->forward(dev, std::move(x), tape, totals);
  }
  Tensor<Dev> backward(Dev& dev, ConstView<Dev> scales, Tape<Dev>& tape) {
    return model_->backward(dev, scales, tape);
  }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>& batch) const {
    return model_->flops(in, batch);
  }
  void parameters(ParameterList<Dev>& out) const { model_->parameters(out); }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual std::vector<std::string> term_names() const = 0;
    virtual void forward(Dev&, Tensor<Dev>, Tape<Dev>&, View<Dev>) = 0;
    virtual Tensor<Dev> backward(Dev&, ConstView<Dev>, Tape<Dev>&) = 0;
    virtual double flops(const Shape&, const MicroBatch<Dev>&) const = 0;
    virtual void parameters(ParameterList<Dev>&) const = 0;
  };
  template <class L>
  struct Model final : Base {
    explicit Model(L held) : loss(std::move(held)) {}
    std::vector<std::string> term_names() const override { return loss.term_names(); }
    void forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape, View<Dev> totals) override {
      loss.forward(dev, std::move(x), tape, totals);
    }
    Tensor<Dev> backward(Dev& dev, ConstView<Dev> scales, Tape<Dev>& tape) override {
      return loss.backward(dev, scales, tape);
    }
    double flops(const Shape& in, const MicroBatch<Dev>& batch) const override {
      return loss.flops(in, batch);
    }
    void parameters(ParameterList<Dev>& out) const override { loss.parameters(out); }
    L loss;
  };
  std::unique_ptr<Base> model_;
};

/// A model before any cut: its layers in order, and its loss.
template <class Dev>
struct Model {
  std::vector<AnyLayer<Dev>> layers;
  AnyLoss<Dev> loss;

  template <class L>
  void add(std::string name, L layer) {
    layers.emplace_back(std::move(name), std::move(layer));
  }
};

}  // namespace dhp
