// Solutions of lesson 6. 1: the wrong order of cuts. 2: four ranks.
#include "lesson.hpp"

using dhp::DType, dhp::Tensor;
using toy::block, toy::Dev;
constexpr std::int64_t samples = 6, inputs = 4, hidden = 8, outputs = 4;

struct Seen {
  std::vector<float> y{};
  dhp::CallCount sums{}, gathers{};
  double sent_bytes = 0;
};

/// Computes y = gelu(x A) B, split the right way (columns of A, rows of B, one sum) or the wrong way round.
Seen forward(dhp::Comm<Dev> plain_world, bool wrong_way) {
  auto [dev, counts, world] = toy::CountedRank(plain_world);
  const int n = world.size(), r = world.rank();
  const auto x = toy::noise(dev, {samples, inputs}, 0);
  const auto a = toy::noise(dev, {inputs, hidden}, 1);
  const auto b = toy::noise(dev, {hidden, outputs}, 2);
  Tensor<Dev> y(dev, DType::f32, {samples, outputs});
  if (wrong_way) {
    const auto mine = dhp::part_of(inputs, n, r), part = dhp::part_of(outputs, n, r);
    Tensor<Dev> h(dev, DType::f32, {samples, hidden});
    gemm(dev, block(dev, x, {0, samples}, mine).view(), block(dev, a, mine, {0, hidden}).view(),
         h.mut());
    world.all_reduce(dev, h.mut()).wait();  // gelu needs whole sums
    activation_forward(dev, dhp::Activation::gelu, h.view(), h.mut());
    Tensor<Dev> columns(dev, DType::f32, {samples, part.size()});
    gemm(dev, h.view(), block(dev, b, {0, hidden}, part).view(), columns.mut());
    y = dhp::gather_parts(dev, world, columns, outputs);  // each rank has some columns of y
  } else {
    const auto mine = dhp::part_of(hidden, n, r);
    Tensor<Dev> h(dev, DType::f32, {samples, mine.size()});
    gemm(dev, x.view(), block(dev, a, {0, inputs}, mine).view(), h.mut());
    activation_forward(dev, dhp::Activation::gelu, h.view(), h.mut());
    gemm(dev, h.view(), block(dev, b, mine, {0, outputs}).view(), y.mut());
    world.all_reduce(dev, y.mut()).wait();
  }
  const auto group = toy::all_ranks(n);
  return {y.to_host<float>(dev), counts->of(group, dhp::CallKind::all_reduce),
          counts->of(group, dhp::CallKind::all_gather), counts->sent_bytes(group)};
}

int main() {
  const auto run = [](int ranks, bool wrong_way) {
    return toy::on_each_rank(ranks, forward, wrong_way)[0];
  };
  const auto one = run(1, false), book = run(2, false), wrong = run(2, true), four = run(4, false);
  const bool same = toy::all_close(book.y, one.y) && toy::all_close(wrong.y, one.y) &&
                    toy::all_close(four.y, one.y);
  std::printf("all give %s\n", same ? "the numbers of one rank" : "different numbers");
  constexpr double y_bytes = 4 * samples * outputs, h_bytes = 4 * samples * hidden;
  toy::Ledger ledger("forward: bytes that one rank sends");
  ledger.line("columns, then rows: all-reduce of y", book.sent_bytes, y_bytes);
  ledger.line("rows, then columns: all-reduce of h, all-gather of y", wrong.sent_bytes,
              h_bytes + y_bytes / 2);
  ledger.line("columns, then rows, 4 ranks: 2 (n - 1) / n of y", four.sent_bytes, 1.5 * y_bytes);
  return toy::status(same && ledger.agrees());
}
