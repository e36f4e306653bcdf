// check_gradients compares a layer's or a loss's backward with central differences of its forward, in double. The
// objective is a random weighted sum of the outputs; every element of the input and of the weights is checked.
#pragma once

#include <dhp/nn/loss.hpp>
#include <dhp/ops/elementwise.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

/// The largest error of a gradient, relative to its largest element. A correct backward gives about 1e-9.
struct GradientGap {
  double worst = 0;
  std::string where;  ///< "the input", or a parameter's name
};

namespace detail {

/// Random numbers in [-1, 1); the same `use` gives the same numbers.
[[nodiscard]] inline std::vector<double> random_values(const Shape& shape, std::uint32_t use) {
  const RandomStream random{.seed = 1, .use = use};
  std::vector<double> values(as_size(shape.count()));
  for (std::size_t at = 0; at < values.size(); ++at)
    values[at] = 2 * random.uniform(static_cast<std::uint64_t>(at)) - 1;
  return values;
}

void compare_gradient(std::vector<double>& values, const std::vector<double>& gradient,
                      auto objective, const std::string& where, GradientGap& gap) {
  constexpr double step = 1e-5;
  double largest = 1e-3;
  for (const double each : gradient) largest = std::max(largest, std::abs(each));
  for (std::size_t at = 0; at < values.size(); ++at) {
    const double kept = values[at];
    values[at] = kept + step;
    const double up = objective();
    values[at] = kept - step;
    const double down = objective();
    values[at] = kept;
    const double error = std::abs((up - down) / (2 * step) - gradient[at]) / largest;
    if (!(error <= gap.worst)) gap = {error, where};  // also true for a NaN
  }
}

/// forward(x, tape) returns the objective; backward(tape) returns the gradient of x. Both tensors may be empty.
template <class Dev, class Part, class Forward, class Backward>
GradientGap gradient_gap(Dev& dev, const MicroBatch<Dev>& batch, Part& part, const Tensor<Dev>& x,
                         Forward forward, Backward backward) {
  constexpr StepContext context{.seed = 3, .step = 3};
  ParameterList<Dev> parameters;
  part.parameters(parameters);
  ParameterStore<Dev> store(dev, parameters, {.compute = DType::f64, .seed = 5});
  // Adds noise, because biases and norms start at special values.
  std::uint32_t use = 100;
  for (const auto& parameter : parameters)
    if (!parameter->spec.buffer) {
      const auto& shape = parameter->value.shape();
      const auto noise = Tensor<Dev>::from_host(dev, shape, random_values(shape, use++));
      axpy(dev, 0.3, noise.view(), parameter->value);
    }
  auto input = x ? x.template to_host<double>(dev) : std::vector<double>();
  const auto fresh = [&] {
    return x ? Tensor<Dev>::from_host(dev, x.shape(), input) : Tensor<Dev>();
  };
  const auto objective = [&] {
    Tape<Dev> tape(context, &batch);
    return forward(fresh(), tape);
  };
  (void)objective();
  store.zero_gradients(dev);
  Tape<Dev> tape(context, &batch);
  (void)forward(fresh(), tape);
  const Tensor<Dev> dx = backward(tape);
  tape.check_popped({});

  GradientGap gap;
  if (dx) compare_gradient(input, dx.template to_host<double>(dev), objective, "the input", gap);
  for (const auto& parameter : parameters) {
    if (parameter->spec.buffer || parameter->spec.frozen) continue;
    auto values = clone(dev, ConstView<Dev>(parameter->value)).template to_host<double>(dev);
    const auto put = [&] {
      dev.copy_from_host(parameter->value.bytes(),
                         reinterpret_cast<const std::byte*>(values.data()),
                         values.size() * sizeof(double));
    };
    const auto moved = [&] {
      put();
      return objective();
    };
    compare_gradient(values, clone(dev, parameter->gradient).template to_host<double>(dev), moved,
                     parameter->spec.name, gap);
    put();
  }
  return gap;
}

}  // namespace detail

/// x: the layer's input, f64; empty for layers that read ids from the batch. Throws Error if output_shape is wrong or
/// if backward leaves something on the tape.
template <class Dev, Layer<Dev> L>
[[nodiscard]] GradientGap check_gradients(Dev& dev, L& layer, const Tensor<Dev>& x,
                                          const MicroBatch<Dev>& batch) {
  Shape shape;
  std::vector<double> weights;  // random weights of the output's elements in the objective
  return detail::gradient_gap(
      dev, batch, layer, x,
      [&](Tensor<Dev> input, Tape<Dev>& tape) {
        const auto y = layer.forward(dev, std::move(input), tape);
        if (weights.empty()) {
          shape = y.shape();
          weights = detail::random_values(shape, 55);
          const auto declared = layer.output_shape(x.shape(), batch);
          check(declared == shape, "output_shape says ", declared, ", but forward gives ", shape);
        }
        const auto values = y.template to_host<double>(dev);
        return std::inner_product(values.begin(), values.end(), weights.begin(), 0.0);
      },
      [&](Tape<Dev>& tape) {
        return layer.backward(dev, Tensor<Dev>::from_host(dev, shape, weights), tape);
      });
}

/// Like check_gradients, for a loss. The objective is a multiple of the sum of the loss's terms.
template <class Dev, Loss<Dev> L>
[[nodiscard]] GradientGap check_loss_gradients(Dev& dev, L& loss, const Tensor<Dev>& x,
                                               const MicroBatch<Dev>& batch) {
  constexpr double scale = 0.7;
  const auto terms = std::ssize(loss.term_names());
  return detail::gradient_gap(
      dev, batch, loss, x,
      [&](Tensor<Dev> input, Tape<Dev>& tape) {
        Tensor<Dev> totals(dev, DType::f64, {terms, loss_fields});
        loss.forward(dev, std::move(input), tape, totals.mut());
        const auto found = totals.template to_host<double>(dev);
        double sum = 0;
        for (std::size_t at = 0; at < found.size(); at += loss_fields) sum += scale * found[at];
        return sum;
      },
      [&](Tape<Dev>& tape) {
        const std::vector<double> scales(detail::as_size(terms), scale);
        return loss.backward(dev, Tensor<Dev>::from_host(dev, {terms}, scales).view(), tape);
      });
}

}  // namespace dhp
