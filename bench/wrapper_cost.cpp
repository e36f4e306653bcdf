// What the wrappers cost: the same steps either bare (the layers' forward and backward, the gradient norm to
// clip by, the optimizer) or through PipelineParallel, DataParallel and Trainer in a group of one.
// wrapper_cost.py counts the instructions of both. Usage: bench_wrapper_cost WORKLOAD bare|wrapped STEPS
#include <bench/wrapped.hpp>
#include <dhp/nn/running_statistics.hpp>
#include <dhp/ops/reduce.hpp>

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace {

using bench::Dev;

class BareRun {
 public:
  BareRun(Dev& dev, const bench::Workload& workload)
      : dev_(dev),
        batch_(bench::micro_batch(dev, workload)),
        model_(bench::model(build_, workload)) {
    dhp::ParameterList<Dev> parameters;
    for (const auto& layer : model_.layers) layer.parameters(parameters);
    model_.loss.parameters(parameters);
    store_ = dhp::ParameterStore<Dev>(dev, parameters, {});
    optimizer_ = bench::optimizer(dev, store_, workload);
  }

  double step() {
    store_.zero_gradients(dev_);
    dhp::Tape<Dev> tape({.step = steps_, .batch = &batch_});
    auto x = batch_.input.share();
    for (auto& layer : model_.layers) x = layer.forward(dev_, std::move(x), tape);
    double loss = 0;
    std::vector<double> scales;
    for (const auto& term : model_.loss.forward(dev_, std::move(x), tape)) {
      loss += term.mean();
      scales.push_back(1 / static_cast<double>(term.count));
    }
    auto dy = model_.loss.backward(dev_, scales, tape);
    for (auto layer = model_.layers.rbegin(); layer != model_.layers.rend(); ++layer)
      dy = layer->backward(dev_, std::move(dy), tape);
    ++steps_;
    optimizer_->step(dev_, {},
                     {.learning_rate = bench::learning_rate,
                      .step = steps_,
                      .gradient_scale = dhp::clip_factor(gradient_norm(), bench::clip)});
    dhp::apply_running_statistics(dev_, store_, 0.1, 1);
    return loss;
  }

 private:
  double gradient_norm() {
    dhp::Tensor<Dev> square(dev_, dhp::DType::f64, {1});
    dhp::sum_of_squares<Dev>(dev_, store_.gradients({0, store_.size()}), square.mut());
    return std::sqrt(square.to_host<double>(dev_).front());
  }

  Dev& dev_;
  dhp::Build<Dev> build_;
  dhp::MicroBatch<Dev> batch_;
  dhp::Model<Dev> model_;
  dhp::ParameterStore<Dev> store_;
  std::unique_ptr<dhp::Optimizer<Dev>> optimizer_;
  std::uint32_t steps_ = 0;
};

template <class Run>
void measure(const bench::Workload& workload, int steps) {
  Dev dev;
  Run run(dev, workload);
  for (int step = 0; step < steps; ++step) std::printf("loss %.9g\n", run.step());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: bench_wrapper_cost WORKLOAD bare|wrapped STEPS\n");
    return 2;
  }
  try {
    const auto workload = bench::workload(argv[1]);
    const int steps = std::atoi(argv[3]);
    if (std::string_view(argv[2]) == "bare") measure<BareRun>(workload, steps);
    else measure<bench::WrappedRun>(workload, steps);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
