// The gradient check of a layer: in double, its backward against moving every input and every weight.
#pragma once

#include <dhp/cpu.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace tests {

/// A batch of `samples` samples of `length` rows each: what tokens and their embeddings, attention and
/// dropout read.
inline MicroBatch<Cpu> token_batch(Cpu& dev, std::int64_t samples, std::int64_t length,
                                   std::int64_t vocabulary) {
  std::vector<std::int32_t> ids, offsets{0}, lengths;
  std::vector<std::int64_t> numbers;
  for (std::int64_t row = 0; row < samples * length; ++row) {
    ids.push_back(static_cast<std::int32_t>(row * 7 % vocabulary));
    numbers.push_back(row);
  }
  for (std::int64_t n = 0; n < samples; ++n) {
    offsets.push_back(static_cast<std::int32_t>((n + 1) * length));
    lengths.push_back(static_cast<std::int32_t>(length - n % 2));
  }
  MicroBatch<Cpu> batch;
  batch.samples = samples;
  const auto put = [&](const char* name, const auto& values) {
    batch.side.emplace_back(
        name, Tensor<Cpu>::from_host(dev, {static_cast<std::int64_t>(values.size())}, values));
  };
  put("token_ids", ids);
  put("offsets", offsets);
  put("lengths", lengths);
  put("row_numbers", numbers);
  batch.counts = {{"samples", samples}};
  return batch;
}

/// objective(tape) is any scalar of the layer's output; it must be the same function at every call.
/// Compares `analytic` with the central difference at each element of `values`, relative to the largest.
template <class Objective>
double worst_gap(std::span<double> values, const std::vector<double>& analytic,
                 Objective objective) {
  constexpr double step = 1e-5;
  double largest = 1e-3;
  for (const double value : analytic) largest = std::max(largest, std::abs(value));
  double worst = 0;
  for (std::size_t at = 0; at < values.size(); ++at) {
    const double kept = values[at];
    values[at] = kept + step;
    const double up = objective();
    values[at] = kept - step;
    const double down = objective();
    values[at] = kept;
    const double gap = std::abs((up - down) / (2 * step) - analytic[at]) / largest;
    if (!(gap <= worst)) worst = gap;
  }
  return worst;
}

/// layer: built with a Build of f64. x: its input, or an empty tensor for layers that read ids.
template <class L>
void check_gradients(Cpu& dev, L& layer, Tensor<Cpu> x, const MicroBatch<Cpu>& batch) {
  ParameterList<Cpu> parameters;
  layer.parameters(parameters);
  ParameterStore<Cpu> store(dev, parameters, {.compute = DType::f64, .seed = 5});
  // Away from the special values that biases and norms start with.
  std::uint32_t use = 100;
  for (const auto& parameter : parameters)
    if (!parameter->spec.buffer) {
      const auto noise = random_tensor<double>(dev, parameter->value.shape(), use++);
      axpy(dev, 0.3, noise.view(), parameter->value);
    }
  const StepContext<Cpu> context{.seed = 3, .step = 2, .batch = &batch};
  std::vector<double> input = x ? x.to_host<double>(dev) : std::vector<double>();
  const auto shape = x.shape();
  const bool has_input = static_cast<bool>(x);
  const auto fresh = [&] {
    return has_input ? Tensor<Cpu>::from_host(dev, shape, input) : Tensor<Cpu>();
  };
  Tensor<Cpu> weight;  // of the output's elements in the objective
  const auto objective = [&] {
    Tape<Cpu> tape(context);
    const auto y = layer.forward(dev, fresh(), tape);
    if (!weight) weight = random_tensor<double>(dev, y.shape(), 55);
    return weighted_sum(y, weight);
  };
  (void)objective();
  CHECK(layer.output_shape(shape, batch) == weight.shape());

  store.zero_gradients(dev);
  Tape<Cpu> tape(context);
  (void)layer.forward(dev, fresh(), tape);
  const Tensor<Cpu> dx = layer.backward(dev, clone(dev, weight.view()), tape);
  CHECK(tape.empty());
  if (dx) {
    INFO("the gradient of the input");
    CHECK(worst_gap(std::span(input), dx.to_host<double>(dev), objective) < 1e-6);
  }
  for (const auto& parameter : parameters) {
    if (parameter->spec.buffer) continue;
    INFO("the gradient of ", parameter->spec.name);
    const auto count = static_cast<std::size_t>(parameter->value.count());
    const double* gradient = parameter->gradient.template data<double>();
    const std::vector<double> analytic(gradient, gradient + count);
    CHECK(worst_gap(std::span(parameter->value.template data<double>(), count), analytic,
                    objective) < 1e-6);
  }
}

}  // namespace tests
