// GatedFeedForward: y = (silu(x Wg^T) * x Wu^T) Wd^T with silu(z) = z sigmoid(z), called "SwiGLU" (Shazeer 2020,
// section 2). It is the feed-forward layer of Llama's blocks.
#pragma once

#include <dhp/nn/linear.hpp>

#include <vector>

namespace dhp {

struct GatedFeedForwardOptions {
  std::int64_t columns = 0;  ///< columns of x and y
  std::int64_t inner = 0;    ///< hidden columns of the whole layer, over all ranks
  bool bias = false;         ///< true: each of the three linear layers has a bias
  Initializer weight_init = LinearOptions{}.weight_init;
};

/// x and y are [.., columns]. Weights: "gate.weight" and "up.weight" [inner, columns], "down.weight" [columns, inner].
/// On the tensor axis gate and up are placed by columns and down by rows, or all are replicated.
template <class Dev>
class GatedFeedForward final : public detail::AddsOnto<Dev, GatedFeedForward<Dev>> {
 public:
  GatedFeedForward(ModelBuilder<Dev>& build, const std::string& gate, const std::string& up,
                   const std::string& down, GatedFeedForwardOptions options) {
    const auto add = [&](const std::string& name, std::int64_t in, std::int64_t out,
                         PlacementDims dims) -> const ParameterSpec& {
      const LinearOptions linear{
          .in = in, .out = out, .bias = options.bias, .weight_init = options.weight_init};
      return layers_.emplace_back(build, name, linear, dims).spec();
    };
    layers_.reserve(3);
    const auto& first = add(gate, options.columns, options.inner, {.columns = 0});
    build.check_matching_placement(add(up, options.columns, options.inner, {.columns = 0}),
                                   first.placement, first);
    const bool by_columns = first.placement == Placement::columns;
    build.check_matching_placement(add(down, options.inner, options.columns, {.rows = 1}),
                                   by_columns ? Placement::rows : Placement::replicated, first);
  }

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    auto all = layers_[0].gathered(dev, x.share(), tape);
    auto gate = layers_[0].forward_of(dev, all, x.share(), tape);
    auto up = layers_[1].forward_of(dev, all, std::move(x), tape);
    all = {};
    Tensor<Dev> inner(dev, gate.dtype(), gate.shape());
    detail::swiglu_forward(dev, gate.view(), up.view(), inner.mut());
    tape.push(std::move(gate));
    tape.push(std::move(up));
    return layers_[2].forward(dev, std::move(inner), tape);
  }

  /// Returns onto + the gradient of x; an empty onto counts as zero.
  Tensor<Dev> backward_onto(Dev& dev, Tensor<Dev> dy, Tensor<Dev> onto, Tape<Dev>& tape) {
    auto dinner = layers_[2].backward(dev, std::move(dy), tape);
    auto up = tape.pop();
    const Tensor<Dev> gate = tape.pop();
    const auto of_inner = dinner.view(), of_up = up.view();
    std::vector<Tensor<Dev>> gradients;
    gradients.push_back(reuse(dev, up));
    gradients.push_back(reuse(dev, dinner));
    detail::swiglu_backward(dev, of_inner, gate.view(), of_up, gradients[0].mut(),
                            gradients[1].mut());
    return detail::LinearParts<Dev>::backward_of_all(dev, layers_.data(), gradients.data(), 2,
                                                     std::move(onto), tape);
  }

  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>& batch) const {
    return layers_[2].output_shape(layers_[0].output_shape(in, batch), batch);
  }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>& batch) const {
    const auto inner = layers_[0].output_shape(in, batch);
    return layers_[0].flops(in, batch) + layers_[1].flops(in, batch) +
           3.0 * static_cast<double>(inner.count()) + layers_[2].flops(inner, batch);
  }
  void parameters(ParameterList<Dev>& out) const {
    for (const auto& layer : layers_) layer.parameters(out);
  }

 private:
  std::vector<detail::LinearParts<Dev>> layers_;  // gate, up, down
};

}  // namespace dhp
