// Lesson 17: sequence parallelism. Lesson 6 splits the columns of a pair of layers; between two pairs the activation is
// whole on every rank. Here each rank has only a share of its rows. A reduce-scatter and an all-gather replace the
// all-reduce. The norm, which treats each row alone, goes between them. The ranks send the same bytes and hold less.
#include "lesson.hpp"

using dhp::DType, dhp::Range, dhp::Tensor;
using toy::block, toy::Dev, toy::noise;
constexpr int ranks = 2;
constexpr std::int64_t tokens = 6, width = 4, hidden = 8;

struct Seen {
  std::vector<float> y{}, dx{}, dscale{};
  std::size_t held_bytes = 0;  // bytes kept between pairs for the backward pass
  double sent_bytes = 0;
};

/// Computes y = x + gelu(norm(x) A) B forward, and backward from dy = 1.
Seen run(dhp::Comm<Dev> plain_world, bool by_rows) {
  auto [dev, counts, world] = toy::CountedRank(plain_world);
  const auto mine = dhp::part_of(hidden, world.size(), world.rank());  // this rank's hidden columns
  const auto own = by_rows ? dhp::part_of(tokens, world.size(), world.rank()) : Range{0, tokens};
  const auto a = block(dev, noise(dev, {width, hidden}, 1), {0, width}, mine);
  const auto b = block(dev, noise(dev, {hidden, width}, 2), mine, {0, width});
  auto scale = Tensor<Dev>::zeros(dev, DType::f32, {width});
  const auto shift = Tensor<Dev>::zeros(dev, DType::f32, {width});
  fill(dev, scale.mut(), 1);
  const auto make = [&](std::int64_t rows, std::int64_t columns) {
    return Tensor<Dev>(dev, DType::f32, {rows, columns});
  };
  // Gathers all rows if each rank has some of them.
  const auto gathered = [&](Tensor<Dev> share) {
    if (!by_rows) return share;
    auto all = make(tokens, width);
    world.all_gather(dev, share.view(), all.mut()).wait();
    return all;
  };
  // Sums the summands of all ranks: the whole sum, or this rank's rows of it.
  const auto summed = [&](Tensor<Dev> summand) {
    auto sum = make(own.size(), width);
    if (by_rows) world.reduce_scatter(dev, summand.view(), sum.mut()).wait();
    else world.all_reduce(dev, summand.mut()).wait();
    return by_rows ? std::move(sum) : std::move(summand);
  };

  // Forward. The norm and the sum with x need only the rank's own rows; the pair of layers needs all rows.
  const auto x = block(dev, noise(dev, {tokens, width}, 0), own, {0, width});
  Tensor<Dev> mean(dev, DType::f32, {own.size()}), inv_std(dev, DType::f32, {own.size()});
  auto n = make(own.size(), width), y = make(own.size(), width);
  layer_norm_forward(dev, x.view(), scale.view(), shift.view(), 1e-5, n.mut(), mean.mut(),
                     inv_std.mut());
  const auto all_n = gathered(n.share());
  auto g = make(tokens, mine.size()), h = make(tokens, mine.size()), summand = make(tokens, width);
  gemm(dev, all_n.view(), a.view(), g.mut());
  activation_forward(dev, dhp::Activation::gelu, g.view(), h.mut());
  gemm(dev, h.view(), b.view(), summand.mut());
  add(dev, x.view(), summed(std::move(summand)).view(), y.mut());

  // Backward. dy covers the rank's own rows, and the pair needs all. Each rank gets its own rows of the sum of dn.
  auto dy = make(own.size(), width);
  fill(dev, dy.mut(), 1);
  const auto all_dy = gathered(dy.share());
  auto dg = make(tokens, mine.size()), da = make(width, mine.size()), db = make(mine.size(), width);
  auto dn = make(tokens, width), dx = make(own.size(), width);
  gemm(dev, h.view(), all_dy.view(), db.mut(), {.transpose_a = true});
  gemm(dev, all_dy.view(), b.view(), dg.mut(), {.transpose_b = true});
  activation_backward(dev, dhp::Activation::gelu, g.view(), dg.view(), dg.mut());
  gemm(dev, all_n.view(), dg.view(), da.mut(), {.transpose_a = true});
  gemm(dev, dg.view(), a.view(), dn.mut(), {.transpose_b = true});
  const auto own_dn = summed(std::move(dn));
  Tensor<Dev> dscale(dev, DType::f32, {width}), dshift(dev, DType::f32, {width});
  layer_norm_backward(dev, own_dn.view(), x.view(), scale.view(), mean.view(), inv_std.view(),
                      dx.mut(), dscale.mut(), dshift.mut(), 0);
  add(dev, dx.view(), dy.view(), dx.mut());
  Seen seen;
  seen.sent_bytes = counts->sent_bytes(toy::all_ranks(ranks));
  if (by_rows) {  // each rank has the norm's gradients of its own rows: their sum is needed once a step
    plain_world.all_reduce(dev, dscale.mut()).wait();
    plain_world.all_reduce(dev, dshift.mut()).wait();
  }
  seen.y = y.to_host<float>(dev);
  seen.dx = dx.to_host<float>(dev);
  seen.dscale = dscale.to_host<float>(dev);
  seen.held_bytes = x.size_bytes() + n.size_bytes();
  return seen;
}

int main() {
  const auto whole = toy::on_each_rank(ranks, run, false);
  const auto shares = toy::on_each_rank(ranks, run, true);
  const auto serial = toy::on_each_rank(1, run, false)[0];
  std::printf("                    on one rank   rank 0 of 2   rank 1 of 2\n");
  for (std::int64_t row : {std::int64_t{0}, tokens / 2}) {
    const auto at = static_cast<std::size_t>(row * width);
    const bool second = row >= tokens / 2;
    std::printf("first y of token %d    % .6f", static_cast<int>(row), serial.y[at]);
    std::printf(second ? "             -     % .6f\n" : "     % .6f             -\n",
                shares[second ? 1 : 0].y[second ? at - shares[0].y.size() : at]);
  }
  std::printf("\n");

  bool correct = true;
  for (const auto what : {&Seen::y, &Seen::dx}) {
    auto joined = shares[0].*what;
    joined.insert(joined.end(), (shares[1].*what).begin(), (shares[1].*what).end());
    correct = correct && toy::all_close(joined, serial.*what) &&
              toy::all_close(whole[1].*what, serial.*what);
  }
  correct = correct && toy::all_close(shares[0].dscale, serial.dscale) &&
            toy::all_close(shares[1].dscale, serial.dscale);

  constexpr auto activation = 4 * tokens * width;  // bytes of an activation
  toy::Ledger ledger;
  ledger.line("sent, rows whole: 2 all-reduces", whole[0].sent_bytes,
              2. * 2 * (ranks - 1) / ranks * activation);
  ledger.line("sent, rows shared: 2 gathers, 2 reduce-scatters", shares[0].sent_bytes,
              4. * (ranks - 1) / ranks * activation);
  ledger.line("held between pairs, rows whole: x and norm(x)", whole[0].held_bytes, 2 * activation);
  ledger.line("held between pairs, rows shared: 1 / n of it", shares[0].held_bytes,
              2 * activation / ranks);
  return toy::status(correct && ledger.agrees());
}
