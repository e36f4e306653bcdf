// Solutions of lesson 7. 1: heads that cannot be divided among the ranks. 2: the bytes of gathering the logits.
#include "lesson.hpp"

#include <cmath>
#include <string>

using dhp::DType, dhp::Tensor;
using toy::Dev;
constexpr int ranks = 2;

/// Returns the error message for a layer with this number of heads, or nothing.
std::string refusal(dhp::Comm<Dev> world, int heads) {
  dhp::ModelBuilder<Dev> build(world);
  build.place({{"heads.*", dhp::Placement::heads}});
  try {
    const dhp::SelfAttention<Dev> layer(build, "heads",
                                        {.heads = heads, .columns = 12, .max_length = 5});
  } catch (const dhp::Error& error) {
    return error.sentence();
  }
  return {};
}

struct Seen {
  double loss = 0;
  double sent_bytes = 0;
};

/// Returns the loss of logits that ranks split by words. The ranks sum four numbers a row, or gather all logits.
Seen loss_of(dhp::Comm<Dev> plain_world, std::int64_t rows, std::int64_t words, bool gathers) {
  auto [dev, counts, world] = toy::CountedRank(plain_world);
  dhp::ModelBuilder<Dev> build(world);
  const auto part = dhp::part_of(words, world.size(), world.rank());
  Tensor<Dev> mine(dev, DType::f32, {rows, part.size()});
  copy_columns(dev, toy::noise(dev, {rows, words}, 0).view(), part.first, mine.mut(), 0,
               part.size());
  const std::vector<std::int32_t> labels(static_cast<std::size_t>(rows), 3);
  const auto wanted = Tensor<Dev>::from_host(dev, {rows}, labels);

  dhp::CrossEntropy<Dev> entropy(build, words,
                                 gathers ? dhp::Placement::replicated : dhp::Placement::words);
  dhp::Tape<Dev> tape({});
  Tensor<Dev> totals(dev, DType::f64, {dhp::loss_fields});
  if (gathers) mine = dhp::gather_parts(dev, world, mine, words);
  entropy.forward(dev, std::move(mine), wanted.view(), tape, totals.mut());
  return {totals.to_host<double>(dev)[0], counts->sent_bytes(toy::all_ranks(ranks))};
}

int main() {
  // Exercise 1.
  const auto three = toy::on_each_rank(ranks, refusal, 3)[0];
  const auto four = toy::on_each_rank(ranks, refusal, 4)[0];
  std::printf("3 heads: %s\n4 heads: %s\n\n", three.c_str(),
              four.empty() ? "accepted" : four.c_str());

  // Exercise 2: BERT's vocabulary, and 20 masked tokens.
  constexpr std::int64_t rows = 20, words = 30522;
  const auto split = toy::on_each_rank(ranks, loss_of, rows, words, false)[0];
  const auto gathered = toy::on_each_rank(ranks, loss_of, rows, words, true)[0];
  toy::Ledger ledger("20 tokens of 30,522 words: bytes that a rank sends");
  ledger.line("a maximum and three sums of each token", split.sent_bytes, 4 * 4 * rows);
  ledger.line("all logits", gathered.sent_bytes, 4 * rows * words / ranks);
  const bool same = std::abs(split.loss / gathered.loss - 1) < 1e-6;
  std::printf("%.0f times less, and %s loss\n", gathered.sent_bytes / split.sent_bytes,
              same ? "the same" : "another");
  return toy::status(!three.empty() && four.empty() && same && ledger.agrees());
}
