// The gradient check of a layer: in double, its backward against moving every input and every weight. On any
// device, whose memory the host need not be able to read.
#pragma once

#include <dhp/dhp.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace tests {

/// A batch of `samples` samples of `length` rows each: what tokens and their embeddings, attention and
/// dropout read.
template <class Dev>
MicroBatch<Dev> token_batch(Dev& dev, std::int64_t samples, std::int64_t length,
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
  MicroBatch<Dev> batch;
  batch.samples = samples;
  const auto put = [&](const char* name, const auto& values) {
    batch.side.emplace_back(
        name, Tensor<Dev>::from_host(dev, {static_cast<std::int64_t>(values.size())}, values));
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

/// The elements of a part of a flat buffer.
template <class Dev>
std::vector<double> host_values(Dev& dev, ConstView<Dev> view) {
  return clone(dev, view).template to_host<double>(dev);
}

/// x: its input, or an empty tensor for layers that read ids.
template <class Dev, class L>
void check_gradients(Dev& dev, L& layer, const Tensor<Dev>& x, const MicroBatch<Dev>& batch) {
  ParameterList<Dev> parameters;
  layer.parameters(parameters);
  ParameterStore<Dev> store(dev, parameters, {.compute = DType::f64, .seed = 5});
  // Away from the special values that biases and norms start with.
  std::uint32_t use = 100;
  for (const auto& parameter : parameters)
    if (!parameter->spec.buffer) {
      const auto& shape = parameter->value.shape();
      const auto noise = Tensor<Dev>::from_host(dev, shape, random_doubles(shape, use++));
      axpy(dev, 0.3, noise.view(), parameter->value);
    }
  const StepContext context{.seed = 3, .step = 2};
  std::vector<double> input = x ? x.template to_host<double>(dev) : std::vector<double>();
  const auto fresh = [&] {
    return x ? Tensor<Dev>::from_host(dev, x.shape(), input) : Tensor<Dev>();
  };
  Shape shape;
  std::vector<double> weight;  // of the output's elements in the objective
  const auto objective = [&] {
    Tape<Dev> tape(context, &batch);
    const Tensor<Dev> y = layer.forward(dev, fresh(), tape);
    if (weight.empty()) {
      shape = y.shape();
      weight = random_doubles(shape, 55);
    }
    const auto values = y.template to_host<double>(dev);
    return std::inner_product(values.begin(), values.end(), weight.begin(), 0.0);
  };
  (void)objective();
  CHECK(layer.output_shape(x.shape(), batch) == shape);

  store.zero_gradients(dev);
  Tape<Dev> tape(context, &batch);
  (void)layer.forward(dev, fresh(), tape);
  const Tensor<Dev> dx = layer.backward(dev, Tensor<Dev>::from_host(dev, shape, weight), tape);
  CHECK(tape.empty());
  if (dx) {
    INFO("the gradient of the input");
    CHECK(worst_gap(std::span(input), dx.template to_host<double>(dev), objective) < 1e-6);
  }
  for (const auto& parameter : parameters) {
    if (parameter->spec.buffer) continue;
    INFO("the gradient of ", parameter->spec.name);
    auto values = host_values(dev, ConstView<Dev>(parameter->value));
    const auto put = [&] {
      dev.copy_from_host(parameter->value.bytes(),
                         reinterpret_cast<const std::byte*>(values.data()),
                         values.size() * sizeof(double));
    };
    const auto moved = [&] {
      put();
      return objective();
    };
    const auto analytic = host_values(dev, ConstView<Dev>(parameter->gradient));
    CHECK(worst_gap(std::span(values), analytic, moved) < 1e-6);
    put();
  }
}

}  // namespace tests
