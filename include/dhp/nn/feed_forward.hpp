// FeedForward: y = GELU(x W1^T + b1) W2^T + b2, the two linear layers of a transformer block (Vaswani et al. 2017,
// section 3.3). A device may fuse GELU and its gradient into the matrix products; in 16-bit types it may then use
// GELU's tanh form (ops/linear.hpp).
#pragma once

#include <dhp/nn/linear.hpp>

namespace dhp {

struct FeedForwardOptions {
  std::int64_t columns = 0;  ///< columns of x and y
  std::int64_t inner = 0;    ///< hidden columns of the whole layer, over all ranks
  Initializer weight_init = LinearOptions{}.weight_init;
};

/// x and y are [.., columns]. The weights are "first.weight" [inner, columns], "first.bias" [inner], "second.weight"
/// [columns, inner] and "second.bias" [columns]. On the tensor axis the first layer is placed by columns and the second
/// by rows, or both are replicated.
template <class Dev>
class FeedForward final : public detail::AddsOnto<Dev, FeedForward<Dev>> {
 public:
  FeedForward(ModelBuilder<Dev>& build, const std::string& first, const std::string& second,
              FeedForwardOptions options)
      : first_(build, first,
               {.in = options.columns, .out = options.inner, .weight_init = options.weight_init},
               {.columns = 0}),
        second_(build, second,
                {.in = options.inner, .out = options.columns, .weight_init = options.weight_init},
                {.rows = 1}) {
    const bool by_columns = first_.spec().placement == Placement::columns;
    build.check_matching_placement(
        second_.spec(), by_columns ? Placement::rows : Placement::replicated, first_.spec());
    gradient_sum_ = build.sum_of_pieces(first_.spec().placement, build.row_shares());
  }

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    if (first_.is_adapted() || second_.is_adapted())
      return forward_unfused(dev, std::move(x), tape);
    auto inner = detail::in_layer(dev, "first", "output", tape, [&] {
      const auto all = first_.gathered(dev, x.share(), tape);
      const auto shape = first_.whole_y(all.shape());
      Tensor<Dev> before(dev, x.dtype(), shape), y(dev, x.dtype(), shape);
      for (int at = 0; at < pieces(); ++at)
        detail::linear_gelu_forward(dev, detail::as_matrix(all.view()),
                                    value_at(first_.weights(), at), value_at(first_.biases(), at),
                                    matrix(before.mut(), at), matrix(y.mut(), at));
      tape.push(std::move(x));
      tape.push(std::move(before));
      return y;
    });
    return detail::in_layer(dev, "second", "output", tape,
                            [&] { return second_.forward(dev, std::move(inner), tape); });
  }

  /// Returns onto + the gradient of x; an empty onto counts as zero. Computes the gradient of b1 together with an input
  /// gradient. The other weight gradients may be deferred.
  Tensor<Dev> backward_onto(Dev& dev, Tensor<Dev> dy, Tensor<Dev> onto, Tape<Dev>& tape) {
    if (first_.is_adapted() || second_.is_adapted()) {
      auto dinner = second_.backward(dev, std::move(dy), tape);
      const Tensor<Dev> before = tape.pop();
      activation_backward(dev, Activation::gelu, before.view(), dinner.view(), dinner.mut());
      return first_.backward_onto(dev, std::move(dinner), std::move(onto), tape);
    }
    dy = second_.gathered(dev, std::move(dy), tape);
    const auto shape = dy.shape();
    auto dbefore = detail::in_layer(dev, "second", "input gradient", tape, [&] {
      second_.backward_weight(dev, dy.share(), tape);
      const Tensor<Dev> before = tape.pop();
      Tensor<Dev> result(dev, before.dtype(), before.shape());
      const auto gradients = detail::as_matrix(dy.view());
      for (int at = 0; at < pieces(); ++at)
        detail::for_row_groups(tape.row_groups(), gradients.rows(), [&](Range of_group) {
          const auto some = [&](auto view) { return view.slice(of_group); };
          first_.biases()[detail::as_size(at)]->accumulate(
              dev, [&](View<Dev> gradient, double beta) {
                detail::gelu_linear_backward(dev, some(gradients), value_at(second_.weights(), at),
                                             some(matrix(before.view(), at)),
                                             some(matrix(result.mut(), at)), gradient, beta);
              });
        });
      return result;
    });
    dy = {};
    return detail::in_layer(dev, "first", "input gradient", tape, [&] {
      auto all = gradient_sum_.shares().start_gather(dev, tape.pop(), tape);
      auto sum = gradient_sum_.start_by_rows(
          dev, dbefore.dtype(), shape, std::move(onto),
          [&](int at, Range block, View<Dev> to, double beta) {
            const auto of = detail::piece(dbefore.view(), pieces(), at);
            first_.input_gradient(dev, of.slice(block.first, block.last), at, to, beta);
          });
      first_.finish_without_bias(dev, std::move(all).wait(), std::move(dbefore), tape);
      return std::move(sum).wait(dev);
    });
  }

  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>& batch) const {
    return second_.output_shape(first_.output_shape(in, batch), batch);
  }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>& batch) const {
    const auto inner = first_.output_shape(in, batch);
    return first_.flops(in, batch) + static_cast<double>(inner.count()) +
           second_.flops(inner, batch);
  }
  void parameters(ParameterList<Dev>& out) const {
    first_.parameters(out);
    second_.parameters(out);
  }

 private:
  /// Computes the two layers and GELU one by one, for layers with adapters.
  Tensor<Dev> forward_unfused(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    auto before = first_.forward(dev, std::move(x), tape);
    Tensor<Dev> y(dev, before.dtype(), before.shape());
    activation_forward(dev, Activation::gelu, before.view(), y.mut());
    tape.push(std::move(before));
    return second_.forward(dev, std::move(y), tape);
  }
  [[nodiscard]] int pieces() const { return static_cast<int>(first_.weights().size()); }
  [[nodiscard]] static ConstView<Dev> value_at(const ParameterList<Dev>& list, int at) {
    return list[detail::as_size(at)]->value;
  }
  template <class AnyView>
  [[nodiscard]] AnyView matrix(AnyView all, int at) const {
    return detail::as_matrix(detail::piece(all, pieces(), at));
  }

  detail::LinearParts<Dev> first_, second_;
  GroupSum<Dev> gradient_sum_;
};

}  // namespace dhp
