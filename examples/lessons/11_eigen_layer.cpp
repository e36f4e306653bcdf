// Lesson 11: Eigen. The samples stay in the program's own matrix, one observation per column, and are never
// copied. A layer's forward and backward are Eigen expressions. Under D, H and P it is a layer like others.
#include <dhp/cpu.hpp>
#include <dhp/eigen.hpp>

#include "sine_layer.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <utility>
#include <vector>

using Dev = dhp::Cpu;  // Eigen computes on the host
using dhp::eigen::borrow, dhp::eigen::columns_of;

// The largest difference between backward's gradients and central differences, for a sum of G * Y.
double gradient_gap() {
  Dev dev;
  dhp::ModelBuilder<Dev> build(dhp::Comm<Dev>{});
  lesson::SineLayer layer(build, "weight", 3, 4);
  dhp::ParameterList<Dev> parameters;
  layer.parameters(parameters);
  dhp::ParameterStore<Dev> store(dev, parameters, {.compute = dhp::DType::f64});
  Eigen::MatrixXd x = Eigen::MatrixXd::Random(3, 5), g = Eigen::MatrixXd::Random(4, 5);
  const auto objective = [&] {
    dhp::Tape<Dev> tape({});
    return columns_of<double>(layer.forward(dev, borrow(x), tape).view()).cwiseProduct(g).sum();
  };
  dhp::Tape<Dev> tape({});
  (void)layer.forward(dev, borrow(x), tape);
  const dhp::Tensor<Dev> dx = layer.backward(dev, borrow(g), tape);
  double gap = 0;
  const auto compare = [&](double* values, const double* gradient, Eigen::Index count) {
    for (Eigen::Index at = 0; at < count; ++at) {
      const double kept = values[at];
      values[at] = kept + 1e-5;
      const double up = objective();
      values[at] = kept - 1e-5;
      gap = std::max(gap, std::abs((up - objective()) / 2e-5 - gradient[at]));
      values[at] = kept;
    }
  };
  compare(x.data(), dx.view().data<double>(), x.size());
  const auto& weight = *parameters[0];
  compare(weight.value.data<double>(), weight.gradient.data<double>(), weight.value.count());
  return gap;
}

struct Samples {
  Eigen::MatrixXd inputs, targets;  // one observation per column
};
constexpr int batch_size = 16, micro_batches = 8, steps = 40;

dhp::MicroBatch<Dev> batch(const Samples& samples, std::int64_t k) {
  const auto first = k * batch_size;
  const auto part = [&](const Eigen::MatrixXd& of) {
    return borrow(of.middleCols(first, batch_size));
  };
  dhp::MicroBatch<Dev> made;
  made.index = k;
  made.first_sample = first;
  made.samples = batch_size;
  made.input = part(samples.inputs);
  made.side.emplace_back("targets", part(samples.targets));
  made.counts = {{"elements", batch_size}};
  return made;
}

dhp::Model<Dev> network(dhp::ModelBuilder<Dev>& build) {
  dhp::Model<Dev> model;
  const auto add_pair = [&](const std::string& name, std::int64_t in, std::int64_t out) {
    using Columns = dhp::ColumnParallel<Dev, lesson::SineLayer>;
    model.add(name, Columns(build, lesson::SineLayer(build, name + ".weight", in, 32)));
    const dhp::LinearOptions linear{.in = 32, .out = out, .weight_init = dhp::he_normal(32)};
    model.add(name + " out", dhp::RowParallelLinear<Dev>(build, name + "_out", linear));
  };
  add_pair("first", 2, 16);
  add_pair("second", 16, 1);
  model.loss = dhp::MeanSquaredError<Dev>();
  return model;
}

// What every rank runs: the losses of its steps.
std::vector<double> train(dhp::Comm<Dev> world, dhp::MeshShape layout, const Samples& samples) {
  Dev dev;
  std::vector<dhp::MicroBatch<Dev>> batches;
  for (std::int64_t k = 0; k < micro_batches; ++k) batches.push_back(batch(samples, k));
  const dhp::TrainingOptions options{.layout = layout,
                                     .store = {.compute = dhp::DType::f64},
                                     .optimizer = dhp::AdamWOptions{.weight_decay = 0},
                                     .trainer = {.learning_rate = {.peak = 0.01}}};
  dhp::TrainingRun run(dev, std::move(world), options, network, batches.front());
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) losses.push_back(run.step(batches).loss);
  return losses;
}

int main() {
  const dhp::RandomStream random{.seed = 1};
  Samples samples{Eigen::MatrixXd(2, batch_size * micro_batches), {}};
  for (Eigen::Index at = 0; at < samples.inputs.size(); ++at)
    samples.inputs(at) = 2 * random.uniform(static_cast<std::uint64_t>(at)) - 1;
  samples.targets = (3 * samples.inputs.row(0).array()).sin() * samples.inputs.row(1).array();

  // No copy: micro-batch 1 lies where column 16 of the matrix does.
  const auto address = [](const auto* at) { return reinterpret_cast<std::uintptr_t>(at); };
  const auto in_eigen = address(&samples.inputs(0, batch_size));
  const auto in_dhp = address(batch(samples, 1).input.view().bytes());
  std::printf("column 16 of the matrix at %zx, row 0 of micro-batch 1 at %zx\n", in_eigen, in_dhp);
  bool right = in_eigen == in_dhp;

  // A part of each column is no tensor.
  try {
    (void)borrow(samples.inputs.topRows(1));
    right = false;
  } catch (const dhp::Error& error) {
    std::printf("refused: %s\n", error.what());
  }

  const double gap = gradient_gap();
  std::printf("gradients differ from central differences by %.1e\n", gap);
  right = right && gap < 1e-8;

  std::printf("\nD H P   loss of step 1   10            20            40\n");
  std::vector<double> first;
  for (const int d : {1, 2})
    for (const int h : {1, 2})
      for (const int p : {1, 2}) {
        std::vector<double> losses;
        std::mutex mutex;
        dhp::run_ranks<Dev>(d * h * p, [&](dhp::Comm<Dev> world) {
          auto mine = train(world, {.data = d, .tensor = h, .pipeline = p}, samples);
          const std::lock_guard lock(mutex);
          losses = std::move(mine);  // every rank has the same numbers
        });
        std::printf("%d %d %d   %.10f     %.10f  %.10f  %.10f\n", d, h, p, losses[0], losses[9],
                    losses[19], losses[39]);
        if (first.empty()) first = losses;
        for (std::size_t step = 0; step < losses.size(); ++step)
          right = right && std::abs(losses[step] - first[step]) < 1e-9;
      }
  return right && first.back() < first.front() / 10 ? 0 : 1;
}
