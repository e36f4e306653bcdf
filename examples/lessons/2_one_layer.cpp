// Lesson 2: one layer by hand. A layer pushes onto a tape what its backward needs; weight gradients add up in the
// parameter store; the optimizer turns them into a step. The layer learns y = 2 a - b + 0.5.
#include "lesson.hpp"

using dhp::Tensor;
using toy::Dev;
constexpr std::int64_t samples = 6;

int main() {
  Dev dev;
  dhp::ModelBuilder<Dev> build(dhp::Comm<Dev>{});
  dhp::Linear<Dev> layer(build, "plane", {.in = 2, .out = 1});
  dhp::ParameterList<Dev> parameters;
  layer.parameters(parameters);
  dhp::ParameterStore<Dev> store(dev, parameters, {.seed = 1});  // memory and initial values
  dhp::Sgd<Dev> optimizer(dev, store, {.momentum = 0.5});

  const std::vector<float> inputs{0, 0, 1, 0, 0, 1, 1, 1, -1, 2, 2, -1};  // a, b of each sample
  std::vector<float> targets;
  for (std::size_t row = 0; row < samples; ++row)
    targets.push_back(2 * inputs[2 * row] - inputs[2 * row + 1] + 0.5f);

  double loss = 0;
  std::size_t tape_bytes = 0;
  for (int step = 1; step <= 60; ++step) {
    store.zero_gradients(dev);
    dhp::Tape<Dev> tape({});
    auto y = layer.forward(dev, Tensor<Dev>::from_host(dev, {samples, 2}, inputs), tape);
    tape_bytes = tape.size_bytes();

    // loss = mean of (y - target)^2, dy = 2 (y - target) / samples
    axpy(dev, -1, Tensor<Dev>::from_host(dev, {samples, 1}, targets).view(), y.mut());
    Tensor<Dev> total(dev, dhp::DType::f64, {1});
    sum_of_squares(dev, y.view(), total.mut());
    loss = total.to_host<double>(dev)[0] / samples;
    scale(dev, 2.0 / samples, y.mut());

    (void)layer.backward(dev, std::move(y), tape);
    const auto state = make_step_state(dev, dhp::StepState{.learning_rate = 0.1});
    optimizer.prepare(dev, {}, state);
    optimizer.apply(dev, state);
    if (step % 20 == 0 || step == 1) std::printf("step %2d  loss %.6f\n", step, loss);
  }
  const auto values = [&](std::size_t which) {
    return clone(dev, dhp::ConstView<Dev>(parameters[which]->value)).to_host<float>(dev);
  };
  std::printf("y = %.3f a + %.3f b + %.3f\n\n", values(0)[0], values(0)[1], values(1)[0]);

  // 2 weights and 1 bias, fp32. In the store weights and bias each begin at a multiple of 32 numbers.
  constexpr std::int64_t numbers = 32 + 32;
  toy::Ledger ledger("bytes held");
  ledger.line("weights", store.weight_bytes(), 4 * numbers);
  ledger.line("gradients", store.gradient_bytes(), 4 * numbers);
  ledger.line("the optimizer's state: a momentum for each", toy::state_bytes(optimizer),
              4 * numbers);
  ledger.line("on the tape between forward and backward: x", tape_bytes, 4 * samples * 2);
  return toy::status(loss < 1e-3 && ledger.agrees());
}
