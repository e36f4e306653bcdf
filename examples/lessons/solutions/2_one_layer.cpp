// Solutions of lesson 2. 1: weight decay by hand. 2: two layers learn a function that one layer cannot.
#include "lesson.hpp"

#include <optional>
#include <string>

using dhp::Tensor;
using toy::Dev;
using Numbers = std::vector<float>;

/// Layers that are trained to y = targets; the last one has one output. Between two layers is GELU.
class Network {
 public:
  Network(Dev& dev, const std::vector<std::int64_t>& widths, const dhp::SgdOptions& options)
      : dev_(dev) {
    dhp::ModelBuilder<Dev> build(dhp::Comm<Dev>{});
    for (std::size_t at = 0; at + 1 < widths.size(); ++at) {
      const dhp::LinearOptions linear{
          .in = widths[at], .out = widths[at + 1], .weight_init = dhp::he_normal(widths[at])};
      const auto name = "layer " + std::to_string(at);
      if (at > 0) layers_.emplace_back("gelu", dhp::gelu<Dev>());
      layers_.emplace_back(name, dhp::Linear<Dev>(build, name, linear));
    }
    for (auto& layer : layers_) layer.parameters(parameters_);
    store_.emplace(dev, parameters_, dhp::ParameterStoreOptions{.seed = 1});
    optimizer_.emplace(dev, *store_, options);
  }
  /// Does one step; returns the loss before it. decay: weight decay by hand.
  double step(const Numbers& inputs, const Numbers& targets, double decay = 0) {
    const auto samples = std::ssize(targets);
    store_->zero_gradients(dev_);
    dhp::Tape<Dev> tape({});
    auto y = Tensor<Dev>::from_host(dev_, {samples, 2}, inputs);
    for (auto& layer : layers_) y = layer.forward(dev_, std::move(y), tape);
    axpy(dev_, -1, Tensor<Dev>::from_host(dev_, {samples, 1}, targets).view(), y.mut());
    Tensor<Dev> total(dev_, dhp::DType::f64, {1});
    sum_of_squares(dev_, y.view(), total.mut());
    const auto n = static_cast<double>(samples);
    scale(dev_, 2 / n, y.mut());
    for (auto at = layers_.size(); at-- > 0;) y = layers_[at].backward(dev_, std::move(y), tape);
    // The gradient of decay / 2 * w^2 is decay * w. Biases do not decay.
    for (const auto& parameter : parameters_)
      if (parameter->spec.decays)
        axpy(dev_, decay, parameter->value, store_->gradients(parameter->range));
    const auto state = make_step_state(dev_, dhp::StepState{.learning_rate = 0.1});
    optimizer_->prepare(dev_, {}, state);
    optimizer_->apply(dev_, state);
    return total.to_host<double>(dev_)[0] / n;
  }
  Numbers values(std::size_t which) {
    return clone(dev_, dhp::ConstView<Dev>(parameters_[which]->value)).to_host<float>(dev_);
  }

 private:
  Dev& dev_;
  std::vector<dhp::AnyLayer<Dev>> layers_;
  dhp::ParameterList<Dev> parameters_;
  std::optional<dhp::ParameterStore<Dev>> store_;
  std::optional<dhp::Sgd<Dev>> optimizer_;
};

int main() {
  Dev dev;
  // 1: the samples of lesson 2, with y = 2 a - b + 0.5.
  const Numbers inputs{0, 0, 1, 0, 0, 1, 1, 1, -1, 2, 2, -1};
  Numbers targets;
  for (std::size_t at = 0; at < inputs.size(); at += 2)
    targets.push_back(2 * inputs[at] - inputs[at + 1] + 0.5f);
  Network free(dev, {2, 1}, {.momentum = 0.5}), by_hand(dev, {2, 1}, {.momentum = 0.5});
  Network by_option(dev, {2, 1}, {.momentum = 0.5, .weight_decay = 0.5});
  for (int step = 0; step < 200; ++step) {
    (void)free.step(inputs, targets);
    (void)by_hand.step(inputs, targets, 0.5);
    (void)by_option.step(inputs, targets);
  }
  const auto print = [](const char* what, Network& network) {
    const auto weights = network.values(0);
    std::printf("%-25s y = %.3f a + %.3f b + %.3f\n", what, weights[0], weights[1],
                network.values(1)[0]);
  };
  print("no decay:", free);
  print("decay 0.5 by hand:", by_hand);
  print("decay 0.5 by the option:", by_option);
  bool correct = toy::all_close(by_hand.values(0), by_option.values(0)) &&
                 toy::all_close(by_hand.values(1), by_option.values(1));

  // 2: exclusive or. The best plane is y = 1/2 everywhere, with a loss of 1/4.
  const Numbers corners{0, 0, 0, 1, 1, 0, 1, 1}, exclusive_or{0, 1, 1, 0};
  Network one(dev, {2, 1}, {.momentum = 0.5}), two(dev, {2, 8, 1}, {.momentum = 0.5});
  double loss_of_one = 0, loss_of_two = 0;
  for (int step = 0; step < 1000; ++step) {
    loss_of_one = one.step(corners, exclusive_or);
    loss_of_two = two.step(corners, exclusive_or);
  }
  std::printf("exclusive or: loss %.6f with one layer, %.6f with two\n", loss_of_one, loss_of_two);
  correct = correct && std::abs(loss_of_one - 0.25) < 1e-4 && loss_of_two < 1e-4;
  return toy::status(correct);
}
