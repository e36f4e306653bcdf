// Solutions of lesson 3. 1: a mean of two means is not the mean. 2: an all-reduce in two halves.
#include "lesson.hpp"

#include <cmath>

using dhp::DType, dhp::Tensor;
using toy::Dev;
constexpr std::int64_t features = 4, samples = 12;

/// Returns the gradient of half the sum over samples [first, last) of (w x - y)^2 at w = 0, as in lesson 3.
Tensor<Dev> gradient_of(Dev& dev, std::int64_t first, std::int64_t last) {
  std::vector<float> inputs, errors;
  for (auto sample = first; sample < last; ++sample) {
    float target = 0;
    for (std::int64_t j = 0; j < features; ++j) {
      inputs.push_back(static_cast<float>(std::cos(static_cast<double>(sample * (j + 1)))));
      target += static_cast<float>(j + 1) * inputs.back();
    }
    errors.push_back(-target);
  }
  const auto x = Tensor<Dev>::from_host(dev, {last - first, features}, inputs);
  const auto error = Tensor<Dev>::from_host(dev, {last - first, 1}, errors);
  Tensor<Dev> gradient(dev, DType::f32, {features, 1});
  gemm(dev, x.view(), error.view(), gradient.mut(), {.transpose_a = true});
  return gradient;
}

/// Rank 0 has nine samples, rank 1 three. Returns the gradient of the mean of all samples, or of the mean of means.
std::vector<float> summed(dhp::Comm<Dev> world, bool divide_by_own) {
  Dev dev;
  const std::int64_t first = world.rank() == 0 ? 0 : 9, last = world.rank() == 0 ? 9 : samples;
  auto gradient = gradient_of(dev, first, last);
  const auto own = static_cast<double>(last - first);
  scale(dev, divide_by_own ? 2 / own / world.size() : 2.0 / samples, gradient.mut());
  world.all_reduce(dev, gradient.mut()).wait();
  return gradient.to_host<float>(dev);
}

struct Seen {
  std::vector<float> values{};
  double sent_bytes = 0;
};

/// Four ranks with three samples each do one all-reduce, or its two halves.
Seen exchanged(dhp::Comm<Dev> plain_world, bool in_halves) {
  auto [dev, counts, world] = toy::CountedRank(plain_world);
  auto gradient = gradient_of(dev, 3 * world.rank(), 3 * world.rank() + 3);
  if (in_halves) {
    Tensor<Dev> part(dev, DType::f32, {features / world.size()});
    world.reduce_scatter(dev, gradient.view(), part.mut()).wait();
    world.all_gather(dev, part.view(), gradient.mut()).wait();
  } else {
    world.all_reduce(dev, gradient.mut()).wait();
  }
  return {gradient.to_host<float>(dev), counts->sent_bytes(toy::all_ranks(world.size()))};
}

int main() {
  // The mean of means weighs a sample of rank 1 with 1/2 * 1/3 = 1/6, one of rank 0 with 1/2 * 1/9 = 1/18, not 1/12.
  const auto expected = toy::on_each_rank(2, summed, false)[0];
  const auto wrong = toy::on_each_rank(2, summed, true)[0];
  double worst = 0;
  for (std::size_t at = 0; at < features; ++at) {
    std::printf("gradient %zu: global mean % .4f, mean of means % .4f\n", at, expected[at],
                wrong[at]);
    worst = std::max(worst, std::abs(static_cast<double>(wrong[at]) / expected[at] - 1));
  }
  std::printf("the mean of means is off by up to %.0f %%\n", 100 * worst);

  const auto whole = toy::on_each_rank(4, exchanged, false);
  const auto halves = toy::on_each_rank(4, exchanged, true);
  bool same = true;
  for (const auto& rank : halves) same = same && toy::all_close(rank.values, whole[0].values);
  toy::Ledger ledger;
  ledger.line("all-reduce of 16 bytes, 4 ranks: sent", whole[0].sent_bytes, 2 * 3.0 / 4 * 16);
  ledger.line("reduce-scatter and all-gather: sent", halves[0].sent_bytes, 2 * 3.0 / 4 * 16);
  return toy::status(worst > 0.1 && same && ledger.agrees());
}
