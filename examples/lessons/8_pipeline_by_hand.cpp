// Lesson 8: P, pipeline parallelism by hand. Two ranks hold different layers: rank 0 is the first *stage*, rank 1 the
// last. A *micro-batch*, some of the step's samples, passes through both: its activation goes forward, from rank 0 to
// rank 1, and the activation's gradient goes back. While rank 1 works on one micro-batch, rank 0 works on the next.
#include "lesson.hpp"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

using dhp::DType, dhp::Tensor;
using toy::Dev;
constexpr int micro_batches = 4, steps = 200;
constexpr std::int64_t rows = 3, inputs = 4, hidden = 8;  // rows: samples of a micro-batch

Tensor<Dev> input(Dev& dev, int m) { return toy::noise(dev, {rows, inputs}, m); }
/// Returns the targets of a micro-batch's samples: 2 x_0 - x_1.
Tensor<Dev> target(Dev& dev, int m) {
  const auto x = input(dev, m).to_host<float>(dev);
  std::vector<float> wanted;
  for (std::size_t row = 0; row < rows; ++row)
    wanted.push_back(2 * x[row * inputs] - x[row * inputs + 1]);
  return Tensor<Dev>::from_host(dev, {rows, 1}, wanted);
}

/// The common part of both stages: weights and their gradient, to which all micro-batches of a step add.
struct Stage {
  Stage(Dev& dev, const dhp::Shape& shape, int which)
      : weights(toy::noise(dev, shape, which)),
        gradient(Tensor<Dev>::zeros(dev, DType::f32, shape)) {}
  void update(Dev& dev) {
    axpy(dev, -0.2, gradient.view(), weights.mut());
    fill(dev, gradient.mut(), 0);
  }
  Tensor<Dev> weights, gradient;
};

/// h = gelu(x A). Keeps x and g = x A of a micro-batch until the gradient of h arrives.
struct First : Stage {
  explicit First(Dev& dev) : Stage(dev, {inputs, hidden}, 200) {}
  Tensor<Dev> forward(Dev& dev, int m) {
    auto x = input(dev, m);
    Tensor<Dev> g(dev, DType::f32, {rows, hidden}), h(dev, DType::f32, {rows, hidden});
    gemm(dev, x.view(), weights.view(), g.mut());
    activation_forward(dev, dhp::Activation::gelu, g.view(), h.mut());
    kept_bytes += x.size_bytes() + g.size_bytes();
    max_kept_bytes = std::max(max_kept_bytes, kept_bytes);
    kept.emplace_back(std::move(x), std::move(g));
    return h;
  }
  void backward(Dev& dev, Tensor<Dev> dh) {
    const auto& [x, g] = kept.front();
    activation_backward(dev, dhp::Activation::gelu, g.view(), dh.view(), dh.mut());
    gemm(dev, x.view(), dh.view(), gradient.mut(), {.transpose_a = true, .beta = 1});
    kept_bytes -= x.size_bytes() + g.size_bytes();
    kept.pop_front();
  }
  std::deque<std::pair<Tensor<Dev>, Tensor<Dev>>> kept{};
  std::size_t kept_bytes = 0, max_kept_bytes = 0;
};

/// y = h B, loss = mean of (y - target)^2 over all micro-batches. Does forward and backward together; returns dh.
struct Last : Stage {
  explicit Last(Dev& dev) : Stage(dev, {hidden, 1}, 201) {}
  Tensor<Dev> forward_backward(Dev& dev, const Tensor<Dev>& h, int m) {
    Tensor<Dev> error(dev, DType::f32, {rows, 1}), dh(dev, DType::f32, {rows, hidden});
    gemm(dev, h.view(), weights.view(), error.mut());
    axpy(dev, -1, target(dev, m).view(), error.mut());
    for (const float e : error.to_host<float>(dev)) loss += e * e / (rows * micro_batches);
    scale(dev, 2.0 / (rows * micro_batches), error.mut());
    gemm(dev, h.view(), error.view(), gradient.mut(), {.transpose_a = true, .beta = 1});
    gemm(dev, error.view(), weights.view(), dh.mut(), {.transpose_b = true});
    return dh;
  }
  double loss = 0;
};

struct Seen {
  std::vector<double> losses{};
  std::vector<float> weights{};
  std::size_t weights_bytes = 0, max_kept_bytes = 0;
  double sent_bytes = 0;
};

Seen train(dhp::Comm<Dev> plain_world) {
  auto [dev, counts, world] = toy::CountedRank(plain_world);
  std::optional<First> first;  // a rank has only its own stage
  std::optional<Last> last;
  if (world.rank() == 0) first.emplace(dev);
  if (world.rank() == world.size() - 1) last.emplace(dev);
  Seen seen;
  for (int step = 0; step < steps; ++step) {
    if (first && last) {  // one rank: one micro-batch after another
      for (int m = 0; m < micro_batches; ++m)
        first->backward(dev, last->forward_backward(dev, first->forward(dev, m), m));
    } else if (first) {  // all forwards, then all backwards
      for (int m = 0; m < micro_batches; ++m) world.send(dev, first->forward(dev, m), 1);
      for (int m = 0; m < micro_batches; ++m) {
        Tensor<Dev> dh(dev, DType::f32, {rows, hidden});
        world.recv(dev, dh.mut(), 1);
        first->backward(dev, std::move(dh));
      }
    } else {
      for (int m = 0; m < micro_batches; ++m) {
        Tensor<Dev> h(dev, DType::f32, {rows, hidden});
        world.recv(dev, h.mut(), 0);
        world.send(dev, last->forward_backward(dev, h, m), 0);
      }
    }
    if (first) first->update(dev);
    if (last) last->update(dev), seen.losses.push_back(std::exchange(last->loss, 0));
  }
  if (first) {
    seen.weights = first->weights.to_host<float>(dev);
    seen.weights_bytes += first->weights.size_bytes();
    seen.max_kept_bytes = first->max_kept_bytes;
  }
  if (last) seen.weights_bytes += last->weights.size_bytes();
  seen.sent_bytes = counts->sent_bytes(toy::all_ranks(world.size()));
  return seen;
}

int main() {
  const auto two = toy::on_each_rank(2, train);
  const auto one = toy::on_each_rank(1, train)[0];
  std::printf("         loss, 1 rank   loss, 2 stages\n");
  for (const std::size_t step : {0, 99, 199})
    std::printf("step %3zu  %.8f     %.8f\n", step + 1, one.losses[step], two[1].losses[step]);
  const bool same = two[1].losses == one.losses && two[0].weights == one.weights;
  std::printf("losses and the first stage's weights: %s\n\n",
              same ? "the same, bit for bit" : "different");

  toy::Ledger ledger;
  ledger.line("stage 0: weights, held", two[0].weights_bytes, 4 * inputs * hidden);
  ledger.line("stage 1: weights, held", two[1].weights_bytes, 4 * hidden);
  ledger.line("stage 0: sent per step, 4 activations h", two[0].sent_bytes / steps,
              micro_batches * 4 * rows * hidden);
  ledger.line("stage 1: sent per step, 4 gradients dh", two[1].sent_bytes / steps,
              micro_batches * 4 * rows * hidden);
  ledger.line("stage 0: x and g kept at most, 4 micro-batches", two[0].max_kept_bytes,
              micro_batches * 4 * rows * (inputs + hidden));
  ledger.line("1 rank: x and g kept at most, 1 micro-batch", one.max_kept_bytes,
              4 * rows * (inputs + hidden));
  return toy::status(same && ledger.agrees() && one.losses.back() < one.losses.front() / 2);
}
