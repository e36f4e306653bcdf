// Lesson 3: D, data parallelism by hand. A *rank* is a worker with its own memory. Two ranks hold the same weights and
// each has half of the samples. Each computes the gradient of its half; one *all-reduce* gives both ranks the sum. That
// sum is the gradient of all samples, so both take the same step, and weights stay equal without being sent.
#include "lesson.hpp"

#include <cmath>

using dhp::DType, dhp::Tensor;
using toy::Dev;

constexpr int ranks = 2;
constexpr std::int64_t features = 4;
constexpr std::int64_t samples = 12;  // the global batch, over all ranks
constexpr int steps = 100;

/// Sample s has the features x_j = cos(s (j + 1)) and the target y = 1 x_0 + 2 x_1 + 3 x_2 + 4 x_3.
float feature(std::int64_t sample, std::int64_t j) {
  return static_cast<float>(std::cos(static_cast<double>(sample * (j + 1))));
}

struct Seen {
  std::vector<float> own{};      // gradient of this rank's samples, in the first step
  std::vector<float> summed{};   // sum of `own` over the ranks
  std::vector<float> weights{};  // weights after the last step
  dhp::CallCount all_reduces{};  // calls of all steps
  double sent_bytes = 0;
  std::size_t state_bytes = 0;  // bytes of weights and gradient
  std::size_t sample_bytes = 0;
};

Seen train(dhp::Comm<Dev> plain_world) {
  auto [dev, counts, world] = toy::CountedRank(plain_world);

  // This rank has the samples in rows [first, last) of the global batch.
  const auto [first, last] = dhp::part_of(samples, world.size(), world.rank());
  const auto rows = last - first;
  std::vector<float> inputs, targets;
  for (auto sample = first; sample < last; ++sample) {
    float target = 0;
    for (std::int64_t j = 0; j < features; ++j) {
      inputs.push_back(feature(sample, j));
      target += static_cast<float>(j + 1) * inputs.back();
    }
    targets.push_back(target);
  }
  const auto x = Tensor<Dev>::from_host(dev, {rows, features}, inputs);
  const auto y = Tensor<Dev>::from_host(dev, {rows, 1}, targets);

  auto weights = Tensor<Dev>::zeros(dev, DType::f32, {features, 1});  // the same on every rank
  Tensor<Dev> gradient(dev, DType::f32, {features, 1});
  Tensor<Dev> error(dev, DType::f32, {rows, 1});
  Seen seen;
  for (int step = 0; step < steps; ++step) {
    gemm(dev, x.view(), weights.view(), error.mut());
    axpy(dev, -1, y.view(), error.mut());  // error = x w - y
    gemm(dev, x.view(), error.view(), gradient.mut(), {.transpose_a = true});
    scale(dev, 2.0 / samples, gradient.mut());  // gradient of the mean over the *global* batch
    if (step == 0) seen.own = gradient.to_host<float>(dev);

    world.all_reduce(dev, gradient.mut()).wait();  // the only line that involves other ranks

    if (step == 0) seen.summed = gradient.to_host<float>(dev);
    axpy(dev, -0.5, gradient.view(), weights.mut());
  }
  seen.weights = weights.to_host<float>(dev);
  seen.all_reduces = counts->of(toy::all_ranks(ranks), dhp::CallKind::all_reduce);
  seen.state_bytes = weights.size_bytes() + gradient.size_bytes();
  seen.sample_bytes = x.size_bytes() + y.size_bytes();
  seen.sent_bytes = counts->sent_bytes(toy::all_ranks(ranks));
  return seen;
}

void print(const char* what, const std::vector<float>& values) {
  std::printf("%-34s", what);
  for (const float value : values) std::printf(" % .4f", value);
  std::printf("\n");
}

int main() {
  const auto two = toy::on_each_rank(ranks, train);
  const auto one = toy::on_each_rank(1, train);
  print("gradient of rank 0's samples", two[0].own);
  print("gradient of rank 1's samples", two[1].own);
  print("after the all-reduce, on rank 0", two[0].summed);
  print("after the all-reduce, on rank 1", two[1].summed);
  print("gradient of all samples, one rank", one[0].own);
  print("weights after 100 steps, rank 0", two[0].weights);
  print("weights after 100 steps, rank 1", two[1].weights);
  print("weights after 100 steps, one rank", one[0].weights);

  // A step has one all-reduce of the gradient. For S bytes, each of n ranks sends 2 (n - 1) / n S.
  constexpr auto size = static_cast<std::int64_t>(sizeof(float)) * features;
  toy::Ledger ledger;
  ledger.line("gradient, brought to the all-reduce, per step", two[0].all_reduces.bytes / steps,
              size);
  ledger.line("sent, per step: 2 (n - 1) / n of it", two[0].sent_bytes / steps,
              2.0 * (ranks - 1) / ranks * size);
  // A rank holds all weights, and its part of the samples.
  ledger.line("weights and gradient, held: as one rank alone", two[0].state_bytes,
              one[0].state_bytes);
  ledger.line("samples, held: 1 / n of them", two[0].sample_bytes, one[0].sample_bytes / ranks);

  bool correct = ledger.agrees() && two[0].weights == two[1].weights;
  for (std::size_t j = 0; j < features; ++j)
    correct = correct && std::abs(two[0].weights[j] - one[0].weights[j]) < 1e-5 &&
              std::abs(two[0].weights[j] - static_cast<float>(j + 1)) < 0.01;
  return toy::status(correct);
}
