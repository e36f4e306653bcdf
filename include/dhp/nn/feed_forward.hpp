// FeedForward: y = GELU(x W1^T + b1) W2^T + b2, the pair of linear layers in a transformer block (Vaswani et al. 2017,
// section 3.3). A device may fuse GELU and its gradient into the products, in 16-bit types in the tanh form
// (ops/linear.hpp).
#pragma once

#include <dhp/nn/linear.hpp>

namespace dhp {

struct FeedForwardOptions {
  std::int64_t columns = 0;  ///< of x and y
  std::int64_t inner = 0;    ///< hidden columns of the whole layer
  Initializer weight_init = LinearOptions{}.weight_init;
};

/// x and y [.., columns]; weights "first.weight" [inner, columns], "first.bias" [inner], "second.weight"
/// [columns, inner], "second.bias" [columns]. On the tensor axis the first is placed by columns and the second by rows,
/// or both are replicated.
template <class Dev>
class FeedForward final {
 public:
  FeedForward(ModelBuilder<Dev>& build, const std::string& first, const std::string& second,
              FeedForwardOptions options)
      : first_(build, first,
               {.in = options.columns, .out = options.inner, .weight_init = options.weight_init},
               {.columns = 0}),
        second_(build, second,
                {.in = options.inner, .out = options.columns, .weight_init = options.weight_init},
                {.rows = 1}) {
    const auto& spec = first_.weight()->spec;
    const bool by_columns = spec.placement == Placement::columns;
    if (by_columns) gradient_sum_ = GroupSum<Dev>(build.tensor);
    build.check_beside(second_.weight()->spec, by_columns ? Placement::rows : Placement::replicated,
                       spec);
  }

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    if (first_.is_adapted() || second_.is_adapted()) return forward_apart(dev, std::move(x), tape);
    auto inner = detail::in_layer(dev, "first", "output", tape, [&] {
      const auto shape = x.shape().with(x.shape().rank() - 1, first_.weight()->value.shape()[0]);
      Tensor<Dev> before(dev, x.dtype(), shape), y(dev, x.dtype(), shape);
      detail::linear_gelu_forward(dev, detail::as_matrix(x.view()), first_.weight()->value,
                                  first_.bias()->value, detail::as_matrix(before.mut()),
                                  detail::as_matrix(y.mut()));
      tape.push(std::move(x));
      tape.push(std::move(before));
      return y;
    });
    return detail::in_layer(dev, "second", "output", tape,
                            [&] { return second_.forward(dev, std::move(inner), tape); });
  }

  /// The gradient of b1 is computed with an input gradient; the others may be deferred.
  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    return backward_onto(dev, std::move(dy), {}, tape);
  }
  /// onto may be empty.
  Tensor<Dev> backward_onto(Dev& dev, Tensor<Dev> dy, Tensor<Dev> onto, Tape<Dev>& tape) {
    onto = gradient_sum_.once(std::move(onto));
    const double beta = onto ? 1 : 0;
    if (!onto) onto = Tensor<Dev>(dev, dy.dtype(), dy.shape());
    auto dx = backward_into(dev, std::move(dy), std::move(onto), beta, tape);
    gradient_sum_(dev, dx);
    return dx;
  }

  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>& batch) const {
    return second_.output_shape(in, batch);
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
  /// Unfused path for adapters.
  Tensor<Dev> forward_apart(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    auto before = first_.forward(dev, std::move(x), tape);
    Tensor<Dev> y(dev, before.dtype(), before.shape());
    activation_forward(dev, Activation::gelu, before.view(), y.mut());
    tape.push(std::move(before));
    return second_.forward(dev, std::move(y), tape);
  }
  Tensor<Dev> backward_apart(Dev& dev, Tensor<Dev> dy, Tensor<Dev> dx, double beta,
                             Tape<Dev>& tape) {
    auto dinner = second_.backward(dev, std::move(dy), tape);
    const Tensor<Dev> before = tape.pop();
    activation_backward(dev, Activation::gelu, before.view(), dinner.view(), dinner.mut());
    auto sum = detail::writable(dev, std::move(dx));
    first_.backward_into(dev, std::move(dinner), sum.mut(), beta, tape);
    return sum;
  }

  /// beta dx + the gradient of x.
  Tensor<Dev> backward_into(Dev& dev, Tensor<Dev> dy, Tensor<Dev> dx, double beta,
                            Tape<Dev>& tape) {
    if (first_.is_adapted() || second_.is_adapted())
      return backward_apart(dev, std::move(dy), std::move(dx), beta, tape);
    auto dbefore = detail::in_layer(dev, "second", "input gradient", tape, [&] {
      second_.backward_weight(dev, dy.share(), tape);
      const Tensor<Dev> before = tape.pop();
      Tensor<Dev> made(dev, before.dtype(), before.shape());
      first_.bias()->accumulate(dev, [&](View<Dev> gradient, double gradient_beta) {
        detail::gelu_linear_backward(dev, detail::as_matrix(dy.view()), second_.weight()->value,
                                     detail::as_matrix(before.view()),
                                     detail::as_matrix(made.mut()), gradient, gradient_beta);
      });
      return made;
    });
    dy = {};
    return detail::in_layer(dev, "first", "input gradient", tape, [&] {
      auto sum = detail::writable(dev, std::move(dx));
      first_.backward_without_bias(dev, std::move(dbefore), sum.mut(), beta, tape);
      return sum;
    });
  }

  Linear<Dev> first_, second_;
  GroupSum<Dev> gradient_sum_;
};

}  // namespace dhp
