// Linear: y = x W^T + b over the rows of x.
#pragma once

#include <dhp/nn/low_rank.hpp>
#include <dhp/ops/linear.hpp>

#include <memory>

namespace dhp {

struct LinearOptions {
  std::int64_t in = 0;
  std::int64_t out = 0;
  bool bias = true;
  Initializer weight_init{Initializer::Kind::normal, 0.02};
  Initializer bias_init{};
  int fused = 0;  ///< of weight and bias, as in ParameterSpec
};

struct TiedLinearOptions {
  bool bias = true;  ///< one of its own
  /// Pads y with columns of zeros to a multiple of 64; those of dy are ignored. Tensor cores need aligned rows, and
  /// vocabulary sizes are seldom multiples of 8.
  bool padded = false;
};

/// x [.., in], y [.., out]; weight "name.weight" [out, in], bias "name.bias" [out]. By columns or words, x is whole on
/// every rank, and y holds its outputs. By rows, x holds its inputs, and y is whole: the first rank adds the replicated
/// bias, and each rank computes its whole gradient. The model's builder may add an adapter (nn/low_rank.hpp).
template <class Dev>
class Linear final {
 public:
  /// dims: of the weight.
  Linear(ModelBuilder<Dev>& build, const std::string& name, LinearOptions options,
         PlacementDims dims = {.columns = 0, .rows = 1, .words = 0}) {
    weight_ = build.parameter({.name = name + ".weight",
                               .shape = {options.out, options.in},
                               .init = options.weight_init,
                               .fused = options.fused},
                              dims);
    follow(build, name, options.bias, options.bias_init, options.fused);
    adapter_ = build.adapter(name, weight_->spec);
  }
  /// Shares the weight of another layer, with the same placement: a tied decoder.
  Linear(ModelBuilder<Dev>& build, const std::string& name, Parameter<Dev> tied,
         TiedLinearOptions options = {})
      : weight_(std::move(tied)), padded_(options.padded) {
    follow(build, name, options.bias);
  }

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    check_columns(x.shape());
    Tensor<Dev> y(dev, x.dtype(), with_columns(x.shape()));
    if (padded_) dev.fill_zero(y.mut().bytes(), y.size_bytes());
    gemm(dev, detail::as_matrix(x.view()), weight_->value, detail::as_matrix(y.mut()),
         {.transpose_b = true, .padded = padded_},
         adds_bias_ ? ConstView<Dev>(bias_->value) : ConstView<Dev>());
    if (adapter_)
      adapter_->forward(dev, detail::as_matrix(x.view()), detail::as_matrix(y.mut()), tape);
    tape.push(std::move(x));
    output_sum_(dev, y);
    return y;
  }

  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    return backward_onto(dev, std::move(dy), {}, tape);
  }
  /// onto may be empty.
  Tensor<Dev> backward_onto(Dev& dev, Tensor<Dev> dy, Tensor<Dev> onto, Tape<Dev>& tape) {
    onto = gradient_sum_.once(std::move(onto));
    const double beta = onto ? 1 : 0;
    auto dx = detail::writable(dev, std::move(onto), dy.dtype(),
                               dy.shape().with(dy.shape().rank() - 1, weight_->value.shape()[1]));
    backward_into(dev, std::move(dy), dx.mut(), beta, tape);
    gradient_sum_(dev, dx);
    return dx;
  }

  // Parts of backward, for composite layers, which sum dx over the tensor group; each pops what forward pushed.

  /// dx = beta dx + the gradient of x, for several layers with the same x.
  void backward_into(Dev& dev, Tensor<Dev> dy, View<Dev> dx, double beta, Tape<Dev>& tape) {
    backward_into(dev, std::move(dy), dx, beta, bias_, tape);
  }
  /// The caller adds the bias gradient.
  void backward_without_bias(Dev& dev, Tensor<Dev> dy, View<Dev> dx, double beta, Tape<Dev>& tape) {
    backward_into(dev, std::move(dy), dx, beta, nullptr, tape);
  }
  /// The caller computes the gradient of x.
  void backward_weight(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    weight_gradient(dev, tape.pop(), std::move(dy), bias_, tape);
  }

  [[nodiscard]] const Parameter<Dev>& weight() const { return weight_; }
  /// Null without a bias.
  [[nodiscard]] const Parameter<Dev>& bias() const { return bias_; }
  /// Whether it has an adapter: weight and bias are not all of it.
  [[nodiscard]] bool is_adapted() const { return adapter_ != nullptr; }

  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>&) const {
    return with_columns(in);
  }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>&) const {
    return 2.0 * static_cast<double>(in.rows() * weight_->spec.local_shape().count()) +
           (adapter_ ? adapter_->flops(in.rows()) : 0);
  }
  void parameters(ParameterList<Dev>& out) const {
    out.push_back(weight_);
    if (bias_) out.push_back(bias_);
    adapter_parameters(out);
  }
  void adapter_parameters(ParameterList<Dev>& out) const {
    if (adapter_) adapter_->parameters(out);
  }

 private:
  /// bias: null if the caller adds its gradient.
  void backward_into(Dev& dev, Tensor<Dev> dy, View<Dev> dx, double beta, Parameter<Dev> bias,
                     Tape<Dev>& tape) {
    gemm(dev, detail::as_matrix(dy.view()), weight_->value, detail::as_matrix(dx),
         {.beta = beta, .padded = padded_});
    auto x = tape.pop();
    if (adapter_) adapter_->backward(dev, x, dy, detail::as_matrix(dx), tape);
    weight_gradient(dev, std::move(x), std::move(dy), std::move(bias), tape);
  }
  /// Computes and defers the bias gradient with the weight gradient: a device may fuse them.
  void weight_gradient(Dev& dev, Tensor<Dev> x, Tensor<Dev> dy, Parameter<Dev> bias,
                       Tape<Dev>& tape) {
    if (!is_trained<Dev>({weight_, bias})) return;
    tape.weight_gradient(dev, [weight = weight_, bias = std::move(bias), x = std::move(x),
                               dy = std::move(dy), padded = padded_](Dev& device) {
      const auto out = detail::as_matrix(dy.view()), in = detail::as_matrix(x.view());
      if (!bias)
        return weight->accumulate(device, [&](View<Dev> dw, double beta) {
          gemm(device, out, in, dw, {.transpose_a = true, .beta = beta, .padded = padded});
        });
      detail::accumulate_all(device, {weight, bias}, [&](const auto& views, double beta) {
        detail::linear_gradients(device, out, in, views[0], views[1], beta, padded);
      });
    });
  }

  [[nodiscard]] Shape with_columns(const Shape& in) const {
    const auto columns = weight_->spec.local_shape()[0];
    return in.with(in.rank() - 1, padded_ ? (columns + 63) / 64 * 64 : columns);
  }

  void check_columns(const Shape& in) const {
    const auto& spec = weight_->spec;
    check(in.back() == spec.local_shape()[1], "a layer with the weight ", spec.name, ", placement ",
          spec.placement, ", has ", spec.local_shape()[1], " of ", spec.shape[1],
          " inputs on this rank, but x has ", in.back(),
          " columns; where tensor ranks hold columns of x, the next layer is placed by rows");
  }

  /// Makes the bias, and sums, that the weight's placement needs.
  void follow(ModelBuilder<Dev>& build, const std::string& name, bool bias, Initializer init = {},
              int fused = 0) {
    const auto placement = weight_->spec.placement;
    const bool by_rows = placement == Placement::rows;
    if (by_rows) output_sum_ = GroupSum<Dev>(build.tensor);
    else if (placement != Placement::replicated) gradient_sum_ = GroupSum<Dev>(build.tensor);
    if (!bias) return;
    bias_ = build.parameter({.name = name + ".bias",
                             .shape = {weight_->spec.shape[0]},
                             .init = init,
                             .decays = false,
                             .fused = fused},
                            {.columns = 0, .heads = 0, .words = 0});
    build.check_beside(bias_->spec, by_rows ? Placement::replicated : placement, weight_->spec);
    adds_bias_ = !by_rows || build.tensor.rank() == 0;
  }

  Parameter<Dev> weight_;
  Parameter<Dev> bias_;
  bool adds_bias_ = false;
  bool padded_ = false;
  GroupSum<Dev> output_sum_, gradient_sum_;
  std::shared_ptr<detail::Adapter<Dev>> adapter_;
};

}  // namespace dhp
