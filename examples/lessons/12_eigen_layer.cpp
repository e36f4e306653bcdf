// Lesson 12: Eigen. The samples stay in the program's own matrix, one observation per column, and are never copied. A
// layer's forward and backward are Eigen expressions. The layer works under D, H and P like any other.
#include <dhp/eigen.hpp>
#include <dhp/nn/check_gradients.hpp>

#include "lesson.hpp"
#include "sine_layer.hpp"

using dhp::eigen::borrow;
using toy::Dev;  // the Cpu, since Eigen computes on the host

struct Samples {
  Eigen::MatrixXd inputs, targets;  // one observation per column
};
constexpr int batch_size = 16, micro_batches = 8, steps = 40;

dhp::MicroBatch<Dev> batch(const Samples& samples, std::int64_t k) {
  const auto part = [&](const Eigen::MatrixXd& of) {
    return borrow(of.middleCols(k * batch_size, batch_size));
  };
  return toy::micro_batch(k, part(samples.inputs), part(samples.targets));
}

dhp::Model<Dev> network(dhp::ModelBuilder<Dev>& build) {
  build.place({{"*_out.weight", dhp::Placement::rows},
               {"*_out.bias", dhp::Placement::replicated},
               {"*.weight", dhp::Placement::columns}});
  dhp::Model<Dev> model;
  const auto add_pair = [&](const std::string& name, std::int64_t in, std::int64_t out) {
    model.add(name, lesson::SineLayer(build, name + ".weight", in, 32));
    const dhp::LinearOptions linear{.in = 32, .out = out, .weight_init = dhp::he_normal(32)};
    model.add(name + " out", dhp::Linear<Dev>(build, name + "_out", linear));
  };
  add_pair("first", 2, 16);
  add_pair("second", 16, 1);
  model.loss = dhp::MeanSquaredError<Dev>();
  return model;
}

struct Seen {
  std::vector<double> losses{};
  std::size_t weight_bytes = 0, gradient_bytes = 0, state_bytes = 0;
  std::shared_ptr<dhp::CallCounts> counts = std::make_shared<dhp::CallCounts>();  // calls of a step
};

/// Runs on every rank.
Seen train(dhp::Comm<Dev> plain_world, dhp::MeshShape layout, const Samples& samples) {
  Dev dev;
  Seen seen;
  std::vector<dhp::MicroBatch<Dev>> batches;
  for (std::int64_t k = 0; k < micro_batches; ++k) batches.push_back(batch(samples, k));
  const dhp::TrainingOptions options{.layout = layout,
                                     .store = {.compute = dhp::DType::f64},
                                     .optimizer = dhp::AdamWOptions{.weight_decay = 0},
                                     .trainer = {.learning_rate = {.peak = 0.01}}};
  dhp::TrainingRun run(dev, counted(dev, plain_world, seen.counts), options, network,
                       batches.front());
  for (int step = 0; step < steps; ++step) {
    seen.counts->reset();
    seen.losses.push_back(run.step(batches).loss);
  }
  seen.weight_bytes = run.store().weight_bytes();
  seen.gradient_bytes = run.store().gradient_bytes();
  seen.state_bytes = toy::state_bytes(run.optimizer());
  return seen;
}

/// Returns whether the layer's backward is the derivative of its forward.
bool gradients_are_right(const Samples& samples) {
  Dev dev;
  dhp::ModelBuilder<Dev> build(dhp::Comm<Dev>{});
  lesson::SineLayer layer(build, "weight", 2, 4);
  const auto some = batch(samples, 0);
  return check_gradients(dev, layer, some.input, some).worst < 1e-7;
}

int main() {
  const dhp::RandomStream random{.seed = 1};
  Samples samples{Eigen::MatrixXd(2, batch_size * micro_batches), {}};
  for (Eigen::Index at = 0; at < samples.inputs.size(); ++at)
    samples.inputs(at) = 2 * random.uniform(static_cast<std::uint64_t>(at)) - 1;
  samples.targets = (3 * samples.inputs.row(0).array()).sin() * samples.inputs.row(1).array();

  // Nothing is copied: micro-batch 1 begins at the matrix's column 16.
  const void* const in_eigen = &samples.inputs(0, batch_size);
  bool correct = in_eigen == batch(samples, 1).input.view().bytes();
  std::printf("column 16 of the matrix and row 0 of micro-batch 1: %s\n",
              correct ? "the same memory" : "a copy");

  // A part of each column cannot be a tensor.
  try {
    (void)borrow(samples.inputs.topRows(1));
    correct = false;
  } catch (const dhp::Error& error) {
    std::printf("refused: %s\n", error.sentence().c_str());
  }

  const bool derived = gradients_are_right(samples);
  std::printf("backward is the derivative of forward: %s\n", derived ? "yes" : "no");
  correct = correct && derived;

  std::printf("\nD H P   loss of step 1   10            20            40\n");
  std::vector<double> first;
  std::vector<Seen> ranks;
  for (const int d : {1, 2})
    for (const int h : {1, 2})
      for (const int p : {1, 2}) {
        const dhp::MeshShape layout{.data = d, .tensor = h, .pipeline = p};
        ranks = toy::on_each_rank(d * h * p, train, layout, samples);
        const auto& losses = ranks[0].losses;  // every rank has the same losses
        std::printf("%d %d %d   %.10f     %.10f  %.10f  %.10f\n", d, h, p, losses[0], losses[9],
                    losses[19], losses[39]);
        if (first.empty()) first = losses;
        for (std::size_t step = 0; step < losses.size(); ++step)
          correct = correct && std::abs(losses[step] - first[step]) < 1e-9;
      }

  // The last layout is 2 2 2. Its rank 0 holds half of W [32, 2], and half of the next matrix [16, 32] with all of its
  // bias [16]. In the store, each parameter begins at a multiple of 32 numbers. All numbers are fp64, 8 bytes.
  constexpr std::int64_t numbers = 32 + 256 + 32;
  constexpr std::int64_t mine = micro_batches / 2, losses = 32 * (micro_batches + 1), norms = 8 * 6;
  const auto all_reduced = [&](int other) {
    return ranks[0].counts->of({0, other}, dhp::CallKind::all_reduce).bytes;
  };
  std::printf("\n");
  toy::Ledger ledger("2 2 2: bytes of rank 0");
  ledger.line("held: weights", ranks[0].weight_bytes, 8 * numbers);
  ledger.line("held: gradients", ranks[0].gradient_bytes, 8 * numbers);
  ledger.line("held: AdamW's state", ranks[0].state_bytes, 2 * 8 * numbers);
  ledger.line("data axis: all-reduced per step", all_reduced(2), 8 * numbers + 8 + losses);
  ledger.line("tensor axis: all-reduced per step", all_reduced(1),
              mine * 8 * batch_size * (16 + 2) + norms + 32);
  ledger.line("pipeline axis: sent in messages per step",
              ranks[0].counts->of({0, 4}, dhp::CallKind::send).bytes, mine * 8 * batch_size * 16);
  return toy::status(correct && ledger.agrees() && first.back() < first.front() / 10);
}
