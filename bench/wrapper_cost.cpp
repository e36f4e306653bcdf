// The overhead of the wrappers: the same steps either bare (layers' forward and backward, gradient norm, optimizer) or
// through PipelineParallel, DataParallel and Trainer in a group of one. wrapper_cost.py counts the instructions of
// both.
#include <bench/program.hpp>
#include <bench/wrapped.hpp>
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
    store_ = dhp::ParameterStore<Dev>(dev, model_.parameters(), {});
    optimizer_ = bench::optimizer(dev, store_, workload);
  }

  double step() {
    store_.begin_gradients(dev_);
    dhp::Tape<Dev> tape({.step = ++steps_}, &batch_);
    auto x = batch_.input.share();
    for (auto& layer : model_.layers) x = layer.forward(dev_, std::move(x), tape);
    const auto terms = static_cast<std::int64_t>(batch_.counts.size());
    dhp::Tensor<Dev> losses(dev_, dhp::DType::f64, {terms, dhp::loss_fields});
    model_.loss.forward(dev_, std::move(x), tape, losses.mut());
    const auto found = losses.to_host<double>(dev_);
    double loss = 0;
    std::vector<double> scales;
    for (std::size_t at = 0; at < found.size(); at += dhp::loss_fields) {
      loss += found[at] / found[at + 1];
      scales.push_back(1 / found[at + 1]);
    }
    const auto weights = dhp::Tensor<Dev>::from_host(dev_, {terms}, scales);
    auto dy = model_.loss.backward(dev_, weights.view(), tape);
    for (auto layer = model_.layers.rbegin(); layer != model_.layers.rend(); ++layer)
      dy = layer->backward(dev_, std::move(dy), tape);
    store_.complete_gradients(dev_, {0, store_.size()});
    const double norm = gradient_norm();
    const auto state = dhp::make_step_state(
        dev_, dhp::StepState{.learning_rate = bench::learning_rate,
                             .updates = steps_,
                             .gradient_scale = norm > bench::clip ? bench::clip / norm : 1});
    optimizer_->prepare(dev_, {}, state);
    optimizer_->apply(dev_, state);
    store_.update_running_statistics(dev_, 0.1, 1, state.view());
    return loss;
  }

 private:
  double gradient_norm() {
    dhp::Tensor<Dev> square(dev_, dhp::DType::f64, {1});
    dhp::sum_of_squares<Dev>(dev_, store_.gradients({0, store_.size()}), square.mut());
    return std::sqrt(square.to_host<double>(dev_).front());
  }

  Dev& dev_;
  dhp::ModelBuilder<Dev> build_{dhp::Comm<Dev>{}};
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
  return bench::run_main(argc == 4, "bench_wrapper_cost WORKLOAD bare|wrapped STEPS", [&] {
    const auto workload = bench::workload(argv[1]);
    const int steps = std::atoi(argv[3]);
    if (std::string_view(argv[2]) == "bare") measure<BareRun>(workload, steps);
    else measure<bench::WrappedRun>(workload, steps);
  });
}
