// Conv2d without bias. Images [N, H, W, C]; weight [out, K, K, in], in files [out, in, K, K].
#pragma once

#include <dhp/nn/layer.hpp>
#include <dhp/nn/linear.hpp>
#include <dhp/ops/conv2d.hpp>

namespace dhp {

struct Conv2dOptions {
  std::int64_t in = 0;
  std::int64_t out = 0;
  int kernel = 1;
  int stride = 1;
  int padding = 0;
  bool input_gradient = true;  ///< false for the first layer of a model
  /// In training the device may compute the column sums of y with it, for a batch norm that follows in the same layer
  /// list.
  bool column_sums = false;
};

/// Placed by columns, y has this rank's output channels; by rows, x has its input channels, and y is whole.
template <class Dev>
class Conv2d final {
 public:
  Conv2d(ModelBuilder<Dev>& build, const std::string& name, Conv2dOptions options)
      : geometry_{options.kernel, options.stride, options.padding},
        input_gradient_(options.input_gradient),
        column_sums_(options.column_sums) {
    const std::int64_t kernel = options.kernel;
    weight_ = build.parameter({.name = name + ".weight",
                               .shape = {options.out, kernel, kernel, options.in},
                               .init = he_normal(options.out * kernel * kernel),
                               .file_order = FileOrder::out_kernel_in_as_out_in_kernel},
                              {.columns = 0, .rows = 3});
    const auto placement = weight_->spec.placement;
    if (placement == Placement::columns) gradient_sum_ = GroupSum<Dev>(build.tensor);
    if (placement == Placement::rows) output_sum_ = GroupSum<Dev>(build.tensor);
  }

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    Tensor<Dev> y(dev, x.dtype(),
                  conv2d_output_shape(x.shape(), weight_->value.shape()[0], geometry_));
    auto sums =
        column_sums_ && tape.context().training()
            ? detail::conv2d_forward_with_sums(dev, x.view(), weight_->value, geometry_, y.mut())
            : std::optional<Tensor<Dev>>();
    if (sums) y.carry_column_sums(std::move(*sums));
    else conv2d_forward(dev, x.view(), weight_->value, geometry_, y.mut());
    tape.push(std::move(x));
    output_sum_(dev, y);
    return y;
  }

  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    return backward_onto(dev, std::move(dy), Tensor<Dev>(), tape);
  }
  /// onto may be empty.
  Tensor<Dev> backward_onto(Dev& dev, Tensor<Dev> dy, Tensor<Dev> onto, Tape<Dev>& tape) {
    Tensor<Dev> x = tape.pop();
    onto = gradient_sum_.once(std::move(onto));
    if (input_gradient_) onto = input_gradient(dev, dy, x, std::move(onto));
    weight_gradient(dev, std::move(x), std::move(dy), tape);
    gradient_sum_(dev, onto);
    return onto;
  }

  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>&) const {
    return conv2d_output_shape(in, weight_->spec.local_shape()[0], geometry_);
  }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>& batch) const {
    return 2.0 * static_cast<double>(output_shape(in, batch).rows()) *
           static_cast<double>(weight_->spec.local_shape().count());
  }
  void parameters(ParameterList<Dev>& out) const { out.push_back(weight_); }

 private:
  Tensor<Dev> input_gradient(Dev& dev, const Tensor<Dev>& dy, const Tensor<Dev>& x,
                             Tensor<Dev> onto) {
    if (x.norm() != nullptr) {
      Tensor<Dev> dx(dev, x.dtype(), x.shape());
      if (auto sums = detail::conv2d_backward_data_to_norm(
              dev, dy.view(), weight_->value, geometry_, onto.view(), *x.norm(), dx.mut())) {
        dx.carry_norm_sums(std::move(*sums));
        return dx;
      }
    }
    const double beta = onto ? 1 : 0;
    auto dx = detail::writable(dev, std::move(onto), x.dtype(), x.shape());
    conv2d_backward_data(dev, dy.view(), weight_->value, geometry_, dx.mut(), beta);
    return dx;
  }
  void weight_gradient(Dev& dev, Tensor<Dev> x, Tensor<Dev> dy, Tape<Dev>& tape) {
    if (!is_trained<Dev>({weight_})) return;
    tape.weight_gradient(dev, [weight = weight_, geometry = geometry_, x = std::move(x),
                               dy = std::move(dy)](Dev& device) {
      weight->accumulate(device, [&](View<Dev> gradient, double beta) {
        conv2d_backward_filter(device, x.view(), dy.view(), geometry, gradient, beta);
      });
    });
  }

  Conv2dGeometry geometry_;
  bool input_gradient_;
  bool column_sums_;
  Parameter<Dev> weight_;
  GroupSum<Dev> output_sum_, gradient_sum_;
};

}  // namespace dhp
