// Helpers of optimizer tests: a store with all kinds of parameters, and three steps next to the same steps in plain
// doubles.
#pragma once

#include <dhp/cpu.hpp>
#include <tests/support/device_ranks.hpp>

namespace tests {

/// A parameter in the formulas: weights, two buffers of state, and unscaled gradients.
struct Reference {
  bool decays = true;
  std::vector<double> w, m, v;
};

inline double length_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

/// Two weights, a bias, a norm's scale with keep_fp32, running statistics, and a weight of zeros.
inline ParameterList<Cpu> all_kinds(ModelBuilder<Cpu>& build) {
  return {
      build.parameter({.name = "weight", .shape = {5, 7}, .init = normal(1)}),
      build.parameter({.name = "second.weight", .shape = {3, 11}, .init = normal(0.5)}),
      build.parameter({.name = "bias", .shape = {7}, .init = normal(1), .decays = false}),
      build.parameter(
          {.name = "norm", .shape = {9}, .init = constant(1), .decays = false, .keep_fp32 = true}),
      build.parameter({.name = "running", .shape = {9}, .init = constant(4), .buffer = true}),
      build.parameter({.name = "zero.weight", .shape = {4}, .init = constant(0)})};
}

inline Tensor<Cpu>* state_of(Optimizer<Cpu>& optimizer, const std::string& name) {
  for (const auto& each : optimizer.state())
    if (each.name == name) return each.buffer;
  return nullptr;
}

/// Returns the numbers rounded to a type.
inline std::vector<double> rounded_to(DType type, std::vector<double> values) {
  visit_floating(type, [&]<class T>(TypeTag<T>) {
    for (auto& value : values) value = static_cast<double>(static_cast<T>(value));
  });
  return values;
}

/// Takes three steps. make(dev, store, norms): the optimizer. formula(plain, gradient, scalars): one step in doubles.
template <class Make, class Formula>
void three_steps(DType compute, const std::string& first, const std::string& second, Make make,
                 Formula formula) {
  CAPTURE(to_text(compute));
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  ParameterStore<Cpu> store(dev, all_kinds(build), {.compute = compute, .seed = 2});
  Norms<Cpu> norms({}, {}, static_cast<int>(store.parameters().size()));
  auto result = make(dev, store, norms);
  Optimizer<Cpu>& optimizer = result;
  // The masters of 16-bit weights start from the rounded values.
  std::map<std::string, Reference> plain;
  for (const auto& parameter : store.parameters()) {
    const auto w = widened(dev, parameter->value);
    plain[parameter->spec.name] = {parameter->spec.decays, w, std::vector<double>(w.size()),
                                   std::vector<double>(w.size())};
  }
  auto* masters = state_of(optimizer, "master");
  CHECK((masters != nullptr) == (compute == DType::bf16 || compute == DType::f16));
  const double tolerance = compute == DType::f64 ? 1e-13 : 2e-6;
  const auto near = [&](Tensor<Cpu>* buffer, const ParameterState<Cpu>& parameter,
                        const std::vector<double>& expected) {
    REQUIRE(buffer != nullptr);
    CHECK(distance(widened(dev, ParameterStore<Cpu>::view_of(*buffer, parameter)), expected) <
          tolerance);
  };

  for (std::int64_t step = 1; step <= 3; ++step) {
    const StepState scalars{
        .learning_rate = 0.3 / static_cast<double>(step), .updates = step, .gradient_scale = 0.25};
    std::map<std::string, std::vector<double>> gradients;
    for (const auto& parameter : store.parameters()) {
      const auto use = static_cast<std::uint32_t>(100 * step + parameter->index);
      const auto memory = store.gradients(parameter->range);
      const auto drawn = random_tensor(dev, memory.dtype(), memory.shape(), use);
      dev.copy(memory.bytes(), drawn.view().bytes(), drawn.size_bytes());
      auto& gradient = gradients[parameter->spec.name] = widened(dev, memory);
      for (auto& each : gradient) each *= scalars.gradient_scale;
    }
    const auto state = make_step_state(dev, scalars);
    optimizer.prepare(dev, norms.gradient_squares(dev, store), state);
    optimizer.apply(dev, state);
    for (const auto& parameter : store.parameters()) {
      const auto& name = parameter->spec.name;
      CAPTURE(name);
      const auto value = widened(dev, parameter->value);
      if (parameter->spec.buffer) {
        CHECK(value == std::vector<double>(9, 4.0));
        continue;
      }
      auto& expected = plain[name];
      formula(expected, gradients[name], scalars);
      if (!first.empty()) near(state_of(optimizer, first), *parameter, expected.m);
      if (!second.empty()) near(state_of(optimizer, second), *parameter, expected.v);
      if (parameter->value.dtype() == store.accumulation()) {
        CHECK(distance(value, expected.w) < tolerance);
        continue;
      }
      near(masters, *parameter, expected.w);
      const auto master = widened(dev, ParameterStore<Cpu>::view_of(*masters, *parameter));
      CHECK(value == rounded_to(compute, master));
    }
  }
}

}  // namespace tests
