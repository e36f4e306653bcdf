// Lesson 2: one layer by hand. A layer pushes on a tape what its backward needs; weight gradients add up in
// the parameter store; the optimizer turns them into a step. Learns y = 2 a - b + 0.5.
#include <dhp/default_device.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

using Dev = dhp::DefaultDevice;
using dhp::Tensor;

int main() {
  Dev dev;
  dhp::ModelBuilder<Dev> build(dhp::Comm<Dev>{});
  dhp::Linear<Dev> layer(build, "plane", {.in = 2, .out = 1});
  dhp::ParameterList<Dev> parameters;
  layer.parameters(parameters);
  dhp::ParameterStore<Dev> store(dev, parameters, {.seed = 1});  // memory and initial values
  dhp::Sgd<Dev> optimizer(dev, store, {.momentum = 0.5});

  const std::vector<float> inputs{0, 0, 1, 0, 0, 1, 1, 1, -1, 2, 2, -1};  // [6, 2]
  std::vector<float> targets;
  for (std::size_t row = 0; row < 6; ++row)
    targets.push_back(2 * inputs[2 * row] - inputs[2 * row + 1] + 0.5f);

  double loss = 0;
  for (int step = 1; step <= 60; ++step) {
    store.zero_gradients(dev);
    dhp::Tape<Dev> tape({});
    auto y = layer.forward(dev, Tensor<Dev>::from_host(dev, {6, 2}, inputs), tape);

    // loss = mean of (y - target)^2, dy = 2 (y - target) / 6
    axpy(dev, -1, Tensor<Dev>::from_host(dev, {6, 1}, targets).view(), y.mut());
    Tensor<Dev> total(dev, dhp::DType::f64, {1});
    sum_of_squares(dev, y.view(), total.mut());
    loss = total.to_host<double>(dev)[0] / 6;
    scale(dev, 2.0 / 6, y.mut());

    (void)layer.backward(dev, std::move(y), tape);
    const auto state = make_step_state(dev, dhp::StepState{.learning_rate = 0.1});
    optimizer.prepare(dev, {}, state);
    optimizer.apply(dev, state);
    if (step % 20 == 0 || step == 1) std::printf("step %2d  loss %.6f\n", step, loss);
  }
  const auto& weight = parameters[0]->value;
  const auto& bias = parameters[1]->value;
  std::printf("y = %.3f a + %.3f b + %.3f\n", weight.data<float>()[0], weight.data<float>()[1],
              bias.data<float>()[0]);
  return loss < 1e-3 ? 0 : 1;
}
