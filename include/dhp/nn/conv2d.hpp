// Conv2d: a convolution without bias of images [N, H, W, C]. The weight is [out, K, K, in], in files [out, in, K, K].
#pragma once

#include <dhp/core/append.hpp>
#include <dhp/nn/fused_parameters.hpp>
#include <dhp/nn/gather_parts.hpp>
#include <dhp/nn/layer.hpp>
#include <dhp/nn/linear.hpp>
#include <dhp/ops/conv2d.hpp>

namespace dhp {

struct Conv2dOptions {
  std::int64_t in = 0, out = 0;
  int kernel = 1, stride = 1, padding = 0;
  bool input_gradient = true;  ///< false for the first layer of a model
  /// Set if a batch norm follows in the same list of layers: in training the device may then compute the column sums of
  /// y together with y.
  bool column_sums = false;
};

/// On the tensor axis: by columns, y holds this rank's output channels; by rows, x holds this rank's input channels,
/// and y is complete on each rank. With tensor groups, split tensors are pieces [pieces, N, H, W, channels of a group].
template <class Dev>
class Conv2d final : public detail::AddsOnto<Dev, Conv2d<Dev>> {
 public:
  Conv2d(ModelBuilder<Dev>& build, const std::string& name, Conv2dOptions options)
      : geometry_{options.kernel, options.stride, options.padding},
        input_gradient_(options.input_gradient),
        column_sums_(options.column_sums) {
    const std::int64_t kernel = options.kernel;
    weights_ = build.pieces({.name = name + ".weight",
                             .shape = {options.out, kernel, kernel, options.in},
                             .init = he_normal(options.out * kernel * kernel),
                             .file_order = FileOrder::out_kernel_in_as_out_in_kernel},
                            {.columns = 0, .rows = 3});
    by_rows_ = spec().placement == Placement::rows;
    sum_ = build.sum_of_pieces(spec().placement);
  }

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    Tensor<Dev> y;
    if (sum_.is_grouped()) {
      y = in_pieces(dev, x);
    } else {
      y = Tensor<Dev>(dev, x.dtype(), y_shape(x.shape()));
      auto sums = column_sums_ && tape.context().training()
                      ? detail::conv2d_forward_with_sums(dev, x.view(), weight(0)->value, geometry_,
                                                         y.mut())
                      : std::optional<Tensor<Dev>>();
      if (sums) y.carry_column_sums(std::move(*sums));
      else conv2d_forward(dev, x.view(), weight(0)->value, geometry_, y.mut());
      if (by_rows_) sum_(dev, y);
    }
    tape.push(std::move(x));
    return y;
  }

  /// Returns onto + the gradient of x; an empty onto counts as zero.
  Tensor<Dev> backward_onto(Dev& dev, Tensor<Dev> dy, Tensor<Dev> onto, Tape<Dev>& tape) {
    Tensor<Dev> x = tape.pop();
    Tensor<Dev> dx;
    check(input_gradient_ || onto.count() == 0,
          "a Conv2d with input_gradient = false begins a model; here another layer has its input");
    if (!input_gradient_) dx = std::move(onto);
    else if (by_rows_) dx = input_gradient(dev, dy, x, std::move(onto));
    else if (auto fused = gradient_to_norm(dev, dy, x, onto)) dx = std::move(*fused);
    else
      dx = sum_.by_rows(dev, x.dtype(), x.shape(), std::move(onto),
                        [&](int at, Range images, View<Dev> to, double beta) {
                          const auto of = piece(dy.view(), at);
                          backward_data(dev, of.slice(images), at, to, beta);
                        });
    weight_gradient(dev, std::move(x), std::move(dy), tape);
    return dx;
  }

  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>&) const {
    return y_shape(in);
  }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>&) const {
    const auto out = conv2d_output_shape(by_rows_ ? detail::shape_of_piece(pieces(), in) : in,
                                         spec().local_shape()[0], geometry_);
    return 2.0 * static_cast<double>(out.rows()) *
           static_cast<double>(spec().local_shape().count() * pieces());
  }
  void parameters(ParameterList<Dev>& out) const { detail::append(out, weights_); }

 private:
  [[nodiscard]] int pieces() const { return static_cast<int>(weights_.size()); }
  [[nodiscard]] const Parameter<Dev>& weight(int at) const { return weights_[detail::as_size(at)]; }
  [[nodiscard]] const ParameterSpec& spec() const { return weights_[0]->spec; }
  template <class AnyView>
  [[nodiscard]] AnyView piece(AnyView all, int at) const {
    return detail::piece(all, pieces(), at);
  }
  [[nodiscard]] Shape y_shape(const Shape& in) const {
    const auto x = by_rows_ ? detail::shape_of_piece(pieces(), in) : in;
    const auto y = conv2d_output_shape(x, spec().local_shape()[0], geometry_);
    return by_rows_ ? y : detail::shape_of_pieces(pieces(), y);
  }

  [[nodiscard]] Tensor<Dev> in_pieces(Dev& dev, const Tensor<Dev>& x) {
    const auto shape = y_shape(x.shape());
    if (by_rows_)
      return sum_.by_rows(dev, x.dtype(), shape, {},
                          [&](int at, Range images, View<Dev> to, double) {
                            in_type_of(dev, x.dtype(), to, [&](View<Dev> result) {
                              conv2d_forward(dev, piece(x.view(), at).slice(images),
                                             weight(at)->value, geometry_, result);
                            });
                          });
    if constexpr (at_once) {
      const detail::FusedValues<Dev> weight(dev, weights_);
      Tensor<Dev> whole(dev, x.dtype(),
                        conv2d_output_shape(x.shape(), weight.view().shape()[0], geometry_));
      conv2d_forward(dev, x.view(), weight.view(), geometry_, whole.mut());
      return detail::take_part(dev, Comm<Dev>(), whole, pieces());
    }
    Tensor<Dev> y(dev, x.dtype(), shape);
    for (int at = 0; at < pieces(); ++at)
      conv2d_forward(dev, x.view(), weight(at)->value, geometry_, piece(y.mut(), at));
    return y;
  }
  void backward_data(Dev& dev, ConstView<Dev> dy, int at, View<Dev> dx, double beta) {
    in_type_of(dev, dy.dtype(), dx, [&](View<Dev> result) {
      conv2d_backward_data(dev, dy, weight(at)->value, geometry_, result, beta);
    });
  }
  /// Lets `write` fill memory of `type`, then casts it to `to`. Convolutions write `type`; sums of pieces may be wider.
  static void in_type_of(Dev& dev, DType type, View<Dev> to, FunctionRef<void(View<Dev>)> write) {
    if (to.dtype() == type) return write(to);
    Tensor<Dev> result(dev, type, to.shape());
    write(result.mut());
    cast(dev, result.view(), to);
  }

  /// Returns onto + the gradient of x. By rows, x has this rank's channels, or pieces of them.
  [[nodiscard]] Tensor<Dev> input_gradient(Dev& dev, const Tensor<Dev>& dy, const Tensor<Dev>& x,
                                           Tensor<Dev> onto) {
    if (auto fused = gradient_to_norm(dev, dy, x, onto)) return std::move(*fused);
    if (at_once && pieces() > 1) {
      const auto columns = spec().local_shape()[3];
      Tensor<Dev> weights(dev, weight(0)->value.dtype(),
                          spec().local_shape().with(3, columns * pieces()));
      for (int at = 0; at < pieces(); ++at)
        copy_columns(dev, weight(at)->value, 0, weights.mut(), at * columns, columns);
      const auto shape = detail::shape_of_piece(pieces(), x.shape());
      Tensor<Dev> whole(dev, x.dtype(), shape.with(3, columns * pieces()));
      conv2d_backward_data(dev, dy.view(), weights.view(), geometry_, whole.mut(), 0);
      auto dx = detail::take_part(dev, Comm<Dev>(), whole, pieces());
      return onto ? sum_of(dev, std::move(dx), std::move(onto)) : std::move(dx);
    }
    const double beta = onto ? 1 : 0;
    auto dx = detail::writable(dev, std::move(onto), x.dtype(), x.shape());
    for (int at = 0; at < pieces(); ++at)
      backward_data(dev, dy.view(), at, piece(dx.mut(), at), beta);
    return dx;
  }
  /// Computes the input gradient together with the column sums that the preceding batch norm needs, if the device can.
  /// Returns nullopt if the gradient is a sum over pieces, because the norm's ReLU has to mask the complete sum.
  [[nodiscard]] std::optional<Tensor<Dev>> gradient_to_norm(Dev& dev, const Tensor<Dev>& dy,
                                                            const Tensor<Dev>& x,
                                                            const Tensor<Dev>& onto) {
    const bool is_summed = !by_rows_ && spec().is_split();
    if (x.norm() == nullptr || is_summed || sum_.is_grouped()) return {};
    Tensor<Dev> dx(dev, x.dtype(), x.shape());
    auto sums = detail::conv2d_backward_data_to_norm(dev, dy.view(), weight(0)->value, geometry_,
                                                     onto.view(), *x.norm(), dx.mut());
    if (!sums) return {};
    dx.carry_norm_sums(std::move(*sums));
    return dx;
  }
  void weight_gradient(Dev& dev, Tensor<Dev> x, Tensor<Dev> dy, Tape<Dev>& tape) {
    if (!is_trained(weights_)) return;
    tape.weight_gradient(dev, [weights = weights_, geometry = geometry_, by_rows = by_rows_,
                               x = std::move(x), dy = std::move(dy)](Dev& device) {
      const auto pieces = static_cast<int>(weights.size());
      if (at_once && pieces > 1) return gradient_at_once(device, weights, geometry, by_rows, x, dy);
      for (int at = 0; at < pieces; ++at) {
        const auto in = by_rows ? detail::piece(x.view(), pieces, at) : x.view();
        const auto out = by_rows ? dy.view() : detail::piece(dy.view(), pieces, at);
        weights[detail::as_size(at)]->accumulate(device, [&](View<Dev> gradient, double beta) {
          conv2d_backward_filter(device, in, out, geometry, gradient, beta);
        });
      }
    });
  }
  static void gradient_at_once(Dev& dev, const ParameterList<Dev>& weights, Conv2dGeometry geometry,
                               bool by_rows, const Tensor<Dev>& x, const Tensor<Dev>& dy) {
    const auto pieces = static_cast<int>(weights.size());
    Comm<Dev> alone;
    const auto& split = by_rows ? x : dy;
    const auto joined = gather_parts(dev, alone, split, split.columns() * pieces, pieces);
    const auto one = weights[0]->spec.local_shape();
    const int dim = by_rows ? 3 : 0;
    Tensor<Dev> all(dev, accumulation_type(x.dtype()), one.with(dim, one[dim] * pieces));
    conv2d_backward_filter(dev, by_rows ? joined.view() : x.view(),
                           by_rows ? dy.view() : joined.view(), geometry, all.mut(), 0);
    if (by_rows) all = detail::take_part(dev, alone, all, pieces);
    const auto parts = all.view().as({pieces, one.count()});
    for (int at = 0; at < pieces; ++at)
      weights[detail::as_size(at)]->accumulate(dev, parts.slice(at, at + 1));
  }

  /// On the CPU, an element's bits do not depend on which other elements one call computes. Therefore one convolution
  /// computes all groups together, which is faster than one convolution with few channels for each.
  static constexpr bool at_once = Dev::host_accessible;

  Conv2dGeometry geometry_;
  bool input_gradient_, column_sums_, by_rows_ = false;
  ParameterList<Dev> weights_;  // this rank's pieces
  GroupSum<Dev> sum_;           // sums y by rows, otherwise the gradient of x
};

}  // namespace dhp
