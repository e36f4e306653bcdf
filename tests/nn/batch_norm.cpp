// Batch norm's running statistics: how training updates them, and how evaluation uses them.
#include <dhp/cpu.hpp>
#include <dhp/nn/batch_norm.hpp>
#include <dhp/nn/recompute.hpp>
#include <tests/support/gradients.hpp>

namespace {

/// Returns images of one pixel and one channel.
Tensor<Cpu> images(Cpu& dev, const std::vector<double>& values) {
  return Tensor<Cpu>::from_host(dev, {static_cast<std::int64_t>(values.size()), 1, 1, 1}, values);
}

struct Norm {
  explicit Norm(Cpu& dev) : layer(build, "bn", {.channels = 1}) {
    ParameterList<Cpu> parameters;
    layer.parameters(parameters);
    store = ParameterStore<Cpu>(dev, parameters, {.compute = DType::f64});
  }
  double value_of(const std::string& name) {
    for (const auto& parameter : store.parameters())
      if (parameter->spec.name == name) return *parameter->value.data<double>();
    return -1;
  }
  ModelBuilder<Cpu> build{Comm<Cpu>{}};
  BatchNorm<Cpu> layer;
  ParameterStore<Cpu> store;
};

}  // namespace

TEST_CASE("running statistics: one update with the mean of micro-batches and unbiased variances") {
  Cpu dev;
  Norm norm(dev);
  CHECK(norm.value_of("bn.running_mean") == 0);
  CHECK(norm.value_of("bn.running_var") == 1);
  for (const auto& values : {std::vector<double>{1, 3}, {2, 4, 9}}) {
    Tape<Cpu> tape({});
    (void)norm.layer.forward(dev, images(dev, values), tape);
  }
  // The means are 2 and 5, the unbiased variances 2 and 13.
  const auto stays = make_step_state(dev, {.decision = StepDecision::skip});
  norm.store.update_running_statistics(dev, 0.1, 2, stays.view());
  CHECK(norm.value_of("bn.running_mean") == 0);
  const auto goes = make_step_state(dev, {});
  norm.store.update_running_statistics(dev, 0.1, 2, goes.view());
  CHECK(norm.value_of("bn.running_mean") == Approx(0.1 * 3.5).epsilon(1e-14));
  CHECK(norm.value_of("bn.running_var") == Approx(0.9 + 0.1 * 7.5).epsilon(1e-14));
  CHECK(norm.value_of("bn.weight") == 1);  // the update changes no trained parameter
}

TEST_CASE("running statistics: evaluation normalizes by them and adds nothing") {
  Cpu dev;
  Norm norm(dev);
  for (const auto& parameter : norm.store.parameters()) {
    if (parameter->spec.name == "bn.running_mean") *parameter->value.data<double>() = 5;
    if (parameter->spec.name == "bn.running_var") *parameter->value.data<double>() = 4;
  }
  Tape<Cpu> tape({.mode = StepContext::Mode::eval});
  const auto y = widened(norm.layer.forward(dev, images(dev, {5, 9}), tape));
  CHECK(tape.empty());
  CHECK(y[0] == 0);
  CHECK(y[1] == Approx(4 / std::sqrt(4 + 1e-5)).epsilon(1e-14));
  for (const auto& parameter : norm.store.parameters())
    CHECK(*parameter->gradient.data<double>() == 0);
}

TEST_CASE("running statistics: a recomputed forward pass counts once") {
  Cpu dev;
  Norm norm(dev);
  auto again = recompute<Cpu>(std::move(norm.layer));
  Tape<Cpu> tape({});
  (void)again.forward(dev, images(dev, {1, 3}), tape);
  (void)again.backward(dev, images(dev, {1, 0}), tape);
  const auto goes = make_step_state(dev, {});
  norm.store.update_running_statistics(dev, 1.0, 1, goes.view());
  CHECK(norm.value_of("bn.running_mean") == 2);
  CHECK(norm.value_of("bn.running_var") == 2);
}
