// What the tests of optimizers share: a store with all kinds of parameters, and three steps beside the
// same steps written out for single numbers, in double.
#pragma once

#include <dhp/cpu.hpp>
#include <dhp/optim/optimizer.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

namespace tests {

/// One parameter as the formulas see it: weights, two buffers of state, gradients already scaled.
struct Reference {
  bool decays = true;
  std::vector<double> w, m, v;
};

inline double length_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

/// Two weights, one of zeros; a bias; a norm's scale, which is kept exact; running statistics. Their order
/// has neighbours that are treated alike and neighbours that are not.
inline ParameterList<Cpu> all_kinds(Build<Cpu>& build) {
  return {build.parameter({.name = "weight", .shape = {5, 7}, .init = normal(1)}),
          build.parameter({.name = "second.weight", .shape = {3, 11}, .init = normal(0.5)}),
          build.parameter({.name = "bias", .shape = {7}, .init = normal(1), .decays = false}),
          build.parameter(
              {.name = "norm", .shape = {9}, .init = constant(1), .decays = false, .exact = true}),
          build.parameter({.name = "running", .shape = {9}, .init = constant(4), .buffer = true}),
          build.parameter({.name = "zero.weight", .shape = {4}, .init = constant(0)})};
}

inline std::vector<double> copy_of(Cpu& dev, ConstView<Cpu> view) {
  return widened(clone(dev, view));
}

inline Tensor<Cpu>* state_of(Optimizer<Cpu>& optimizer, const std::string& name) {
  for (const auto& each : optimizer.state())
    if (each.name == name) return each.buffer;
  return nullptr;
}

/// make(dev, store, norms) is the optimizer, step(plain, gradient, scalars) the formula; first and second are
/// the names of m and v in its state.
template <class Make, class Formula>
void three_steps(DType compute, const std::string& first, const std::string& second, Make make,
                 Formula formula) {
  CAPTURE(to_text(compute));
  Cpu dev({.threads = 1});
  Build<Cpu> build;
  ParameterStore<Cpu> store(dev, all_kinds(build), {.compute = compute, .seed = 2});
  Norms<Cpu> norms({}, {}, static_cast<int>(store.parameters().size()));
  auto made = make(dev, store, norms);
  Optimizer<Cpu>& optimizer = made;
  // Masters of 16-bit weights start from these as they are, rounded.
  std::map<std::string, Reference> plain;
  for (const auto& parameter : store.parameters()) {
    const auto w = copy_of(dev, parameter->value);
    plain[parameter->spec.name] = {parameter->spec.decays, w, std::vector<double>(w.size()),
                                   std::vector<double>(w.size())};
  }
  auto* masters = state_of(optimizer, "master");
  CHECK((masters != nullptr) == (compute == DType::bf16 || compute == DType::f16));
  const double tolerance = compute == DType::f64 ? 1e-13 : 2e-6;
  const auto near = [&](Tensor<Cpu>* buffer, const ParameterState<Cpu>& parameter,
                        const std::vector<double>& expected) {
    REQUIRE(buffer != nullptr);
    CHECK(distance(copy_of(dev, ParameterStore<Cpu>::of(*buffer, parameter)), expected) <
          tolerance);
  };

  for (std::int64_t step = 1; step <= 3; ++step) {
    const StepState scalars{.learning_rate = 0.3 / static_cast<double>(step),
                            .updates = static_cast<double>(step),
                            .gradient_scale = 0.25};
    std::map<std::string, std::vector<double>> gradients;
    for (const auto& parameter : store.parameters()) {
      const auto use = static_cast<std::uint32_t>(100 * step + parameter->index);
      cast(dev, random_tensor<double>(dev, parameter->value.shape(), use).view(),
           parameter->gradient);
      auto& gradient = gradients[parameter->spec.name] = copy_of(dev, parameter->gradient);
      for (auto& each : gradient) each *= scalars.gradient_scale;
    }
    const auto state = make_step_state(dev, scalars);
    optimizer.step(dev, norms.gradient_squares(dev, store), state);
    for (const auto& parameter : store.parameters()) {
      const auto& name = parameter->spec.name;
      CAPTURE(name);
      const auto value = copy_of(dev, parameter->value);
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
      Tensor<Cpu> rounded(dev, compute, parameter->value.shape());
      cast(dev, ConstView<Cpu>(ParameterStore<Cpu>::of(*masters, *parameter)), rounded.mut());
      CHECK(value == widened(rounded));
    }
  }
}

inline constexpr DType all_computes[] = {DType::f64, DType::f32, DType::bf16, DType::f16};

}  // namespace tests
