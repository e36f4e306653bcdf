// Lesson 6: H, horizontal or tensor parallelism by hand. Two ranks share every layer: each holds half of each weight
// and works on all samples. A layer can be cut in two ways, by its columns (outputs) or by its rows (inputs). With the
// first layer cut by columns and the second by rows, the two exchange nothing between them: one sum per pair is enough.
#include "lesson.hpp"

#include <cmath>

using dhp::DType, dhp::Tensor;
using toy::block, toy::Dev, toy::noise;
constexpr int ranks = 2;
constexpr std::int64_t samples = 6, inputs = 4, hidden = 8, outputs = 3;

struct Seen {
  std::vector<float> partial{};  // this rank's summand of y
  std::vector<float> y{}, dx{};
  std::vector<float> da{};  // gradient of this rank's columns of A
  std::size_t weights_bytes = 0;
  dhp::CallCount all_reduces{};
};

/// Computes y = gelu(x A) B forward, and backward from dy = 1: dB = h^T dy, dh = dy B^T, dA = x^T dg, dx = dg A^T.
Seen run(dhp::Comm<Dev> plain_world) {
  auto [dev, counts, world] = toy::CountedRank(plain_world);
  const auto mine = dhp::part_of(hidden, world.size(), world.rank());  // this rank's hidden columns
  const auto x = noise(dev, {samples, inputs}, 0);                     // whole on every rank
  const auto a =
      block(dev, noise(dev, {inputs, hidden}, 1), {0, inputs}, mine);  // columns of A [4, 8]
  const auto b =
      block(dev, noise(dev, {hidden, outputs}, 2), mine, {0, outputs});  // rows of B [8, 3]
  Seen seen;

  // Forward. Each rank has its columns of g = x A, which are complete. gelu works on each element alone. The rank's
  // rows of B match exactly these columns, so their product is one summand of each output.
  Tensor<Dev> g(dev, DType::f32, {samples, mine.size()});
  Tensor<Dev> h(dev, DType::f32, {samples, mine.size()});
  Tensor<Dev> y(dev, DType::f32, {samples, outputs});
  gemm(dev, x.view(), a.view(), g.mut());
  activation_forward(dev, dhp::Activation::gelu, g.view(), h.mut());
  gemm(dev, h.view(), b.view(), y.mut());
  seen.partial = y.to_host<float>(dev);
  world.all_reduce(dev, y.mut()).wait();  // the pair's only sum forward

  // Backward. dy is whole. Each rank gets the gradients of its part of the weights, and one summand of dx.
  auto dy = Tensor<Dev>::zeros(dev, DType::f32, {samples, outputs});
  fill(dev, dy.mut(), 1);
  Tensor<Dev> db(dev, DType::f32, {mine.size(), outputs});
  Tensor<Dev> dg(dev, DType::f32, {samples, mine.size()});
  Tensor<Dev> da(dev, DType::f32, {inputs, mine.size()});
  Tensor<Dev> dx(dev, DType::f32, {samples, inputs});
  gemm(dev, h.view(), dy.view(), db.mut(), {.transpose_a = true});
  gemm(dev, dy.view(), b.view(), dg.mut(), {.transpose_b = true});
  activation_backward(dev, dhp::Activation::gelu, g.view(), dg.view(), dg.mut());
  gemm(dev, x.view(), dg.view(), da.mut(), {.transpose_a = true});
  gemm(dev, dg.view(), a.view(), dx.mut(), {.transpose_b = true});
  world.all_reduce(dev, dx.mut()).wait();  // the only sum backward, for the previous layer

  seen.y = y.to_host<float>(dev);
  seen.dx = dx.to_host<float>(dev);
  seen.da = da.to_host<float>(dev);
  seen.weights_bytes = a.size_bytes() + b.size_bytes();
  seen.all_reduces = counts->of(toy::all_ranks(ranks), dhp::CallKind::all_reduce);
  return seen;
}

double gelu(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }

int main() {
  const auto two = toy::on_each_rank(ranks, run);
  const auto one = toy::on_each_rank(1, run);
  std::printf("first sample     y of rank 0   of rank 1     their sum     on one rank\n");
  for (std::size_t at = 0; at < outputs; ++at)
    std::printf("  output %zu       % .6f     % .6f     % .6f     % .6f\n", at, two[0].partial[at],
                two[1].partial[at], two[0].y[at], one[0].y[at]);
  std::printf("with the first layer cut by rows, the sum must come before gelu:\n");
  std::printf("  gelu(0.5) + gelu(-0.25) = %.4f, but gelu(0.5 - 0.25) = %.4f\n\n",
              gelu(0.5) + gelu(-0.25), gelu(0.25));

  bool correct = toy::all_close(two[0].y, one[0].y) && toy::all_close(two[1].y, one[0].y) &&
                 toy::all_close(two[0].dx, one[0].dx) && two[0].dx == two[1].dx;
  // Rank 1 has columns 4 to 7 of dA.
  for (std::size_t row = 0; row < inputs; ++row)
    for (std::size_t column = 0; column < hidden / 2; ++column)
      correct = correct && std::abs(two[1].da[row * hidden / 2 + column] -
                                    one[0].da[row * hidden + hidden / 2 + column]) < 1e-6;

  toy::Ledger ledger;
  ledger.line("weights A and B, held: 1 / n of them", two[0].weights_bytes,
              4 * (inputs * hidden + hidden * outputs) / ranks);
  ledger.line("all-reduced: y forward, dx backward", two[0].all_reduces.bytes,
              4 * samples * (outputs + inputs));
  ledger.line("all-reduces of the pair (calls)", two[0].all_reduces.calls, 2);
  return toy::status(correct && ledger.agrees());
}
