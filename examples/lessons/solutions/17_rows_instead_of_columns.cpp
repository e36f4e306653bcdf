// Solutions of lesson 17. 1: rows that the number of ranks does not divide. 2: gathering again instead of keeping.
#include "lesson.hpp"

using dhp::DType, dhp::Tensor;
using toy::Dev;
constexpr int ranks = 2;
constexpr std::int64_t width = 4;

struct Seen {
  bool correct = false;
  double sent_bytes = 0;
};

/// All shares have the length of the longest, so that all-gather can place them end to end. Rows behind the last one
/// are dropped.
Seen uneven(dhp::Comm<Dev> plain_world, std::int64_t rows) {
  auto [dev, counts, world] = toy::CountedRank(plain_world);
  const auto whole = toy::noise(dev, {rows, width}, 0);
  const auto most = (rows + ranks - 1) / ranks;
  const auto first = std::min(world.rank() * most, rows), last = std::min(first + most, rows);
  auto share = Tensor<Dev>::zeros(dev, DType::f32, {most, width});
  const auto own = whole.view().slice(first, last);
  dev.copy(share.mut().bytes(), own.bytes(), own.size_bytes());
  Tensor<Dev> all(dev, DType::f32, {ranks * most, width});
  world.all_gather(dev, share.view(), all.mut()).wait();
  auto found = all.to_host<float>(dev);
  found.resize(static_cast<std::size_t>(rows * width));
  return {found == whole.to_host<float>(dev), counts->sent_bytes(toy::all_ranks(ranks))};
}

/// Returns the bytes that a rank sends for the pair of layers, and keeps of its input. With `again` it keeps only its
/// own rows, and gathers all rows again for the gradient of A.
std::pair<double, std::size_t> sent_and_kept(dhp::Comm<Dev> plain_world, bool again) {
  auto [dev, counts, world] = toy::CountedRank(plain_world);
  constexpr std::int64_t rows = 6;
  const auto share = Tensor<Dev>::zeros(dev, DType::f32, {rows / ranks, width});
  auto all = Tensor<Dev>::zeros(dev, DType::f32, {rows, width});
  auto own = Tensor<Dev>::zeros(dev, DType::f32, {rows / ranks, width});
  const auto gather = [&] { world.all_gather(dev, share.view(), all.mut()).wait(); };
  for (int pass = 0; pass < 2; ++pass) {  // forward, backward
    gather();
    world.reduce_scatter(dev, all.view(), own.mut()).wait();
  }
  if (again) gather();
  return {counts->sent_bytes(toy::all_ranks(ranks)), (again ? share : all).size_bytes()};
}

int main() {
  const auto seven = toy::on_each_rank(ranks, uneven, 7), one = toy::on_each_rank(ranks, uneven, 1);
  const auto keeps = toy::on_each_rank(ranks, sent_and_kept, false)[0];
  const auto gathers = toy::on_each_rank(ranks, sent_and_kept, true)[0];
  toy::Ledger ledger;
  ledger.line("1: sent for 7 rows: 8 are gathered", seven[0].sent_bytes, 4 * width * 8 / ranks);
  ledger.line("1: sent for 1 row: 2 are gathered", one[0].sent_bytes, 4 * width * 2 / ranks);
  ledger.line("2: sent, all rows kept: 4 S / 2", keeps.first, 4. * 4 * 6 * width / ranks);
  ledger.line("2: sent, gathered again: 5 S / 2", gathers.first, 5. * 4 * 6 * width / ranks);
  ledger.line("2: kept, all rows", keeps.second, 4 * 6 * width);
  ledger.line("2: kept, gathered again", gathers.second, 4 * 6 * width / ranks);
  const bool correct = seven[0].correct && seven[1].correct && one[0].correct && one[1].correct;
  return toy::status(correct && ledger.agrees());
}
