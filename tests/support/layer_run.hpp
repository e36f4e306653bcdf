// Runs a layer forward and backward, to compare the run with the run of an equivalent layer.
#pragma once

#include <dhp/cpu.hpp>
#include <tests/support/tensors.hpp>

namespace tests {

struct LayerCase {
  Shape shape;  ///< shape of x; an even number of rows
  DType compute = DType::f64;
  StepContext::Mode mode = StepContext::Mode::train;
  std::uint32_t stream = 1;                 ///< random stream of x and dy
  std::vector<std::int64_t> row_numbers{};  ///< set for packed samples
  std::int64_t first_sample = 5;
  bool deterministic = false;
  bool recomputed = false;
  bool defer = false;  ///< defers the weight gradients
};

/// y and dx hold both micro-batches, one after the other; kept_bytes is the tape of one.
struct LayerRun {
  std::vector<std::string> names;
  std::vector<double> y, dx;
  std::vector<std::vector<double>> early, gradients;  ///< before and after the deferred work
  std::size_t kept_bytes = 0, deferred = 0;
  friend bool operator==(const LayerRun&, const LayerRun&) = default;
};

/// Runs two micro-batches. Random numbers are added to the parameters, so that none stays at 0 or 1.
template <class Dev, class L>
LayerRun run_layer(Dev& dev, L layer, const LayerCase& each) {
  const auto random = [&](const Shape& shape, std::uint32_t use) {
    return random_tensor(dev, each.compute, shape, use);
  };
  LayerRun found;
  ParameterList<Dev> parameters;
  layer.parameters(parameters);
  ParameterStore<Dev> store(
      dev, parameters, {.compute = each.compute, .deterministic = each.deterministic, .seed = 4});
  std::uint32_t use = 100;
  for (const auto& parameter : parameters) {
    found.names.push_back(parameter->spec.name);
    axpy(dev, 0.3, random_tensor(dev, parameter->value.dtype(), parameter->value.shape(), use++),
         parameter->value);
  }
  MicroBatch<Dev> batch;
  batch.samples = 2;
  batch.first_sample = each.first_sample;
  if (!each.row_numbers.empty())
    batch.side.emplace_back("row_numbers", tensor_of(dev, each.row_numbers));
  const auto append = [&](std::vector<double>& all, const Tensor<Dev>& tensor) {
    const auto values = widened<Dev>(dev, tensor.view());
    all.insert(all.end(), values.begin(), values.end());
  };
  std::vector<detail::DeferredGradient<Dev>> deferred;
  for (const std::uint32_t micro_batch : {0u, 1u}) {
    Tape<Dev> tape({.mode = each.mode, .seed = 3, .step = 9}, &batch);
    if (each.defer) tape.defer_to(&deferred);
    const auto y = layer.forward(dev, random(each.shape, each.stream + micro_batch), tape);
    append(found.y, y);
    found.kept_bytes = tape.size_bytes();
    if (each.mode == StepContext::Mode::eval) continue;
    append(found.dx, layer.backward(dev, random(y.shape(), each.stream + 50 + micro_batch), tape));
    CHECK(tape.empty());
  }
  const auto gradients = [&] {
    store.finalize_gradients(dev, {0, store.size()});
    std::vector<std::vector<double>> values;
    for (const auto& parameter : parameters)
      values.push_back(widened<Dev>(dev, parameter->gradient));
    return values;
  };
  found.early = gradients();
  found.deferred = deferred.size();
  for (auto& work : deferred) work(dev);
  found.gradients = gradients();
  return found;
}
inline LayerRun run_layer(Sequential<Cpu> layer, const LayerCase& each) {
  Cpu dev;
  if (each.recomputed) return run_layer(dev, recompute<Cpu>(std::move(layer)), each);
  return run_layer(dev, std::move(layer), each);
}

/// Compares the layers' parameter specs and numbers, the shape of y, and the FLOPs.
inline void check_same_description(const Sequential<Cpu>& one, const Sequential<Cpu>& other,
                                   const Shape& in) {
  ParameterList<Cpu> mine, others;
  one.parameters(mine);
  other.parameters(others);
  REQUIRE(mine.size() == others.size());
  for (std::size_t at = 0; at < mine.size(); ++at) {
    CHECK(mine[at]->spec.name == others[at]->spec.name);
    CHECK(mine[at]->spec.shape == others[at]->spec.shape);
    CHECK(mine[at]->spec.decays == others[at]->spec.decays);
    CHECK(mine[at]->spec.keep_fp32 == others[at]->spec.keep_fp32);
    CHECK(mine[at]->use == others[at]->use);
    CHECK(mine[at]->index == others[at]->index);
  }
  const MicroBatch<Cpu> batch;
  CHECK(one.output_shape(in, batch) == other.output_shape(in, batch));
  CHECK(one.flops(in, batch) == other.flops(in, batch));
}

}  // namespace tests
