// Solutions of lesson 8: three stages by hand, one layer each. They alternate forward and backward passes (1F1B)
// instead of doing all forwards first.
#include "lesson.hpp"

#include <algorithm>
#include <deque>

using dhp::DType, dhp::Tensor;
using toy::Dev;
constexpr int stages = 3, micro_batches = 6, steps = 20;
constexpr std::int64_t rows = 4, columns = 8;

/// The layer y = gelu(x W) of this stage. Keeps x and g = x W of a micro-batch until its gradient arrives.
class Stage {
 public:
  Stage(Dev& dev, int stage)
      : weights_(toy::noise(dev, {columns, columns}, 1000 + stage)),
        gradient_(Tensor<Dev>::zeros(dev, DType::f32, {columns, columns})) {}

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x) {
    Tensor<Dev> g(dev, DType::f32, {rows, columns}), y(dev, DType::f32, {rows, columns});
    gemm(dev, x.view(), weights_.view(), g.mut());
    activation_forward(dev, dhp::Activation::gelu, g.view(), y.mut());
    kept_.emplace_back(std::move(x), std::move(g));
    max_kept_ = std::max(max_kept_, kept_.size());
    return y;
  }
  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy) {
    const auto& [x, g] = kept_.front();
    Tensor<Dev> dx(dev, DType::f32, {rows, columns});
    activation_backward(dev, dhp::Activation::gelu, g.view(), dy.view(), dy.mut());
    gemm(dev, x.view(), dy.view(), gradient_.mut(), {.transpose_a = true, .beta = 1});
    gemm(dev, dy.view(), weights_.view(), dx.mut(), {.transpose_b = true});
    kept_.pop_front();
    return dx;
  }
  void update(Dev& dev) {
    axpy(dev, -0.01, gradient_.view(), weights_.mut());
    fill(dev, gradient_.mut(), 0);
  }
  [[nodiscard]] std::vector<float> weights(Dev& dev) const { return weights_.to_host<float>(dev); }
  [[nodiscard]] std::size_t max_kept() const { return max_kept_; }

 private:
  Tensor<Dev> weights_, gradient_;
  std::deque<std::pair<Tensor<Dev>, Tensor<Dev>>> kept_{};
  std::size_t max_kept_ = 0;
};

Tensor<Dev> received(Dev& dev, dhp::Comm<Dev>& world, int from) {
  Tensor<Dev> message(dev, DType::f32, {rows, columns});
  world.recv(dev, message.mut(), from);
  return message;
}

struct Seen {
  std::vector<float> weights{};
  std::size_t max_kept = 0;
  std::int64_t sent_bytes = 0;
};

/// Trains with the sum of all outputs as the loss: dy = 1.
Seen train(dhp::Comm<Dev> plain_world, bool all_forwards_first) {
  auto [dev, counts, world] = toy::CountedRank(plain_world);
  // Activations and gradients have separate communicators, so that neither waits behind the other.
  auto back = world.split(0, world.rank());
  const int rank = world.rank(), last = world.size() - 1;
  Stage stage(dev, rank);
  const auto forward = [&](int m) {
    auto y = stage.forward(
        dev, rank == 0 ? toy::noise(dev, {rows, columns}, m) : received(dev, world, rank - 1));
    if (rank < last) world.send(dev, std::move(y), rank + 1);
  };
  const auto backward = [&] {
    auto dy = Tensor<Dev>(dev, DType::f32, {rows, columns});
    if (rank == last) fill(dev, dy.mut(), 1);
    else back.recv(dev, dy.mut(), rank + 1);
    auto dx = stage.backward(dev, std::move(dy));
    if (rank > 0) back.send(dev, std::move(dx), rank - 1);
  };
  const int ahead =
      all_forwards_first ? micro_batches : std::min(micro_batches, world.size() - rank);
  for (int step = 0; step < steps; ++step) {
    int done = 0;
    for (int m = 0; m < micro_batches; ++m) {
      forward(m);
      if (m + 1 >= ahead) backward(), ++done;
    }
    while (done++ < micro_batches) backward();
    stage.update(dev);
  }
  return {stage.weights(dev), stage.max_kept(),
          counts->of(toy::all_ranks(world.size()), dhp::CallKind::send).bytes};
}

int main() {
  const auto gpipe = toy::on_each_rank(stages, train, true);
  const auto one_f = toy::on_each_rank(stages, train, false);
  bool same = true;
  toy::Ledger ledger("micro-batches kept at most; bytes sent per step");
  for (int s = 0; s < stages; ++s) {
    const auto& all = gpipe[static_cast<std::size_t>(s)];
    const auto& one = one_f[static_cast<std::size_t>(s)];
    same = same && all.weights == one.weights;
    std::printf("stage %d\n", s);
    ledger.line("  all forwards first: kept", all.max_kept, micro_batches);
    ledger.line("  one forward, one backward: kept", one.max_kept, stages - s);
    // The middle stage sends activations and gradients; the other two send one of them.
    ledger.line("  sent", one.sent_bytes / steps,
                (s == 1 ? 2 : 1) * micro_batches * 4 * rows * columns);
  }
  std::printf("both orders give %s\n",
              same ? "the same weights, bit for bit" : "different weights");
  return toy::status(same && ledger.agrees());
}
