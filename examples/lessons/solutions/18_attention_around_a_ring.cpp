// Solutions of lesson 18. 1: exchanging tokens for heads. 2: the ring in the backward pass.
#include "lesson.hpp"

using dhp::DType, dhp::Tensor;
using toy::Dev;
constexpr std::int64_t tokens = 16, width = 16;

/// Each rank has some tokens with all heads, and exchanges them for all tokens with some heads.
struct Exchanged {
  bool correct = false;
  double sent_bytes = 0;
};
Exchanged tokens_for_heads(dhp::Comm<Dev> plain_world) {
  auto [dev, counts, world] = toy::CountedRank(plain_world);
  const std::int64_t n = world.size(), me = world.rank(), some = tokens / n, columns = width / n;
  // Element (token, column) is token * width + column. The block for a rank has that rank's columns.
  std::vector<float> blocks;
  for (std::int64_t to = 0; to < n; ++to)
    for (auto token = me * some; token < (me + 1) * some; ++token)
      for (auto column = to * columns; column < (to + 1) * columns; ++column)
        blocks.push_back(static_cast<float>(token * width + column));
  const auto mine = Tensor<Dev>::from_host(dev, {n, some, columns}, blocks);
  Tensor<Dev> all(dev, DType::f32, mine.shape());
  world.all_to_all(dev, mine.view(), all.mut()).wait();
  bool correct = true;
  const auto found =
      all.to_host<float>(dev);  // [tokens, columns], since blocks arrive in token order
  for (std::int64_t token = 0; token < tokens; ++token)
    for (std::int64_t column = 0; column < columns; ++column)
      correct = correct && found[static_cast<std::size_t>(token * columns + column)] ==
                               static_cast<float>(token * width + me * columns + column);
  for (int more = 0; more < 3; ++more)  // after q come k and v, and y on the way back
    world.all_to_all(dev, mine.view(), all.mut()).wait();
  return {correct, counts->sent_bytes(toy::all_ranks(world.size()))};
}

/// Sends the messages of the ring without computing; returns their bytes. Keys and values pass on n - 1 times, in each
/// pass. In the backward pass their gradients follow, and pass on once more to return to their owner.
double around_the_ring(dhp::Comm<Dev> plain_world, bool backward) {
  auto [dev, counts, world] = toy::CountedRank(plain_world);
  const int n = world.size(), next = (world.rank() + 1) % n, last = (world.rank() + n - 1) % n;
  auto held = Tensor<Dev>::zeros(dev, DType::f32, {2, tokens / n, width});
  auto gradients = Tensor<Dev>::zeros(dev, DType::f32, {2, tokens / n, width});
  const auto pass_on = [&](Tensor<Dev>& what) {
    world.send(dev, what.share(), next);
    Tensor<Dev> got(dev, DType::f32, what.shape());
    world.recv(dev, got.mut(), last);
    what = std::move(got);
  };
  for (int step = 0; step < n; ++step) {
    if (step + 1 < n) pass_on(held);
    if (backward) pass_on(gradients);
  }
  return static_cast<double>(counts->of(toy::all_ranks(n), dhp::CallKind::send).bytes);
}

int main() {
  bool correct = true;
  toy::Ledger ledger("bytes sent by one rank");
  constexpr double all = 4 * tokens * width;  // bytes of a matrix of all tokens
  for (const int n : {2, 4, 8}) {
    const auto heads = toy::on_each_rank(n, tokens_for_heads);
    const auto ring = [n](bool back) { return toy::on_each_rank(n, around_the_ring, back)[0]; };
    for (const auto& each : heads) correct = correct && each.correct;
    std::printf("%d ranks\n", n);
    ledger.line("  1: tokens for heads, q, k, v and back", heads[0].sent_bytes,
                4 * (n - 1) * all / n / n);
    ledger.line("  1: the ring, k and v", ring(false), 2 * (n - 1) * all / n);
    ledger.line("  2: the ring backward", ring(true), 2 * (2 * n - 1) * all / n);
  }
  return toy::status(correct && ledger.agrees());
}
