// Lesson 18: context parallelism. Four ranks share the tokens of one long sample. A query needs the keys and values of
// all earlier tokens, so keys and values travel around a ring, and each rank adds those it receives to a running
// softmax. With a causal mask later tokens need more work, so it matters which tokens a rank has.
#include "lesson.hpp"

#include <cmath>
#include <limits>

using dhp::DType, dhp::Tensor;
using toy::Dev;
constexpr int ranks = 4;
constexpr std::int64_t tokens = 16, size = 4;  // size: columns of the head

/// Returns the places of a rank's tokens in the sample: one block, or two blocks of half the length, the r-th from the
/// front and the r-th from the back.
std::vector<std::int64_t> tokens_of(int rank, int of, bool from_both_ends) {
  std::vector<std::int64_t> places;
  const auto take = [&](int blocks, int at) {
    const auto range = dhp::part_of(tokens, blocks, at);
    for (auto place = range.first; place < range.last; ++place) places.push_back(place);
  };
  if (!from_both_ends) take(of, rank);
  else
    for (const int at : {rank, 2 * of - 1 - rank}) take(2 * of, at);
  return places;
}
/// Returns these rows of a matrix that all ranks know.
std::vector<float> rows(Dev& dev, int which, const std::vector<std::int64_t>& places) {
  const auto all = toy::noise(dev, {tokens, size}, which).to_host<float>(dev);
  std::vector<float> some;
  for (const auto place : places)
    for (std::int64_t at = 0; at < size; ++at)
      some.push_back(8 * all[static_cast<std::size_t>(place * size + at)]);
  return some;
}

/// A softmax over keys that arrive in sequence: the largest score so far, and sums relative to it.
struct RunningSoftmax {
  float largest = -std::numeric_limits<float>::infinity(), weights = 0;
  std::vector<float> values = std::vector<float>(size);

  void add(float score, const float* value) {
    const float before = largest;
    largest = std::max(largest, score);
    const float shrink = std::exp(before - largest), weight = std::exp(score - largest);
    weights = weights * shrink + weight;
    for (std::size_t at = 0; at < size; ++at) values[at] = values[at] * shrink + weight * value[at];
  }
};

struct Seen {
  std::vector<float> y{};
  std::vector<int> pairs{};  // pairs of a query and a key, in each step
  dhp::CallCount sent{};
};

Seen run(dhp::Comm<Dev> plain_world, bool from_both_ends) {
  auto [dev, counts, world] = toy::CountedRank(plain_world);
  const int n = world.size(), me = world.rank();
  const auto mine = tokens_of(me, n, from_both_ends);
  const auto q = rows(dev, 0, mine);
  auto keys_and_values = rows(dev, 1, mine);  // keys, then values
  const auto v = rows(dev, 2, mine);
  keys_and_values.insert(keys_and_values.end(), v.begin(), v.end());
  const auto here = std::ssize(mine);
  auto held = Tensor<Dev>::from_host(dev, {2, here, size}, keys_and_values);

  Seen seen;
  std::vector<RunningSoftmax> sums(mine.size());
  for (int step = 0; step < n; ++step) {
    // The rank now has keys and values of the tokens `owner`. It sends them on before it uses them, to overlap both.
    const auto owner = tokens_of((me - step + n) % n, n, from_both_ends);
    if (step + 1 < n) world.send(dev, held.share(), (me + 1) % n);
    const auto kv = held.to_host<float>(dev);
    int pairs = 0;
    for (std::size_t i = 0; i < mine.size(); ++i)
      for (std::size_t j = 0; j < owner.size(); ++j) {
        if (owner[j] > mine[i]) continue;  // no token attends to a later one
        float score = 0;
        for (std::size_t at = 0; at < size; ++at) score += q[i * size + at] * kv[j * size + at];
        sums[i].add(score / std::sqrt(static_cast<float>(size)), &kv[(owner.size() + j) * size]);
        ++pairs;
      }
    seen.pairs.push_back(pairs);
    if (step + 1 == n) break;
    Tensor<Dev> next(dev, DType::f32, {2, here, size});
    world.recv(dev, next.mut(), (me + n - 1) % n);
    held = std::move(next);
  }
  for (const auto& sum : sums)
    for (const float value : sum.values) seen.y.push_back(value / sum.weights);
  seen.sent = counts->of(toy::all_ranks(n), dhp::CallKind::send);
  return seen;
}

/// Prints the steps and returns their total time: a step takes as long as its busiest rank.
int table(const char* what, const std::vector<Seen>& seen) {
  std::printf("%-34s step 1   step 2   step 3   step 4\n", what);
  int total = 0;
  for (std::size_t rank = 0; rank < seen.size(); ++rank) {
    std::printf("  pairs of rank %zu                ", rank);
    for (const int pairs : seen[rank].pairs) std::printf(" %8d", pairs);
    std::printf("\n");
  }
  for (std::size_t step = 0; step < seen.size(); ++step) {
    int busiest = 0;
    for (const auto& each : seen) busiest = std::max(busiest, each.pairs[step]);
    total += busiest;
  }
  std::printf("  the busiest of each step: %d pairs in all\n\n", total);
  return total;
}

int main() {
  const auto one = toy::on_each_rank(1, run, false)[0];
  const auto plain = toy::on_each_rank(ranks, run, false);
  const auto balanced = toy::on_each_rank(ranks, run, true);
  const int plain_time = table("one block for each rank", plain);
  const int balanced_time = table("two blocks, from both ends", balanced);

  bool correct = true;
  for (const bool from_both_ends : {false, true})
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<float> wanted;
      for (const auto place : tokens_of(rank, ranks, from_both_ends))
        wanted.insert(wanted.end(), one.y.begin() + place * size,
                      one.y.begin() + (place + 1) * size);
      const auto& seen = (from_both_ends ? balanced : plain)[static_cast<std::size_t>(rank)];
      correct = correct && toy::all_close(seen.y, wanted);
    }
  std::printf("all outputs are those of one rank: %s\n\n", correct ? "yes" : "no");

  toy::Ledger ledger("one rank");
  ledger.line("messages: n - 1", balanced[0].sent.calls, ranks - 1);
  ledger.line("bytes sent: (n - 1) / n of all keys and values", balanced[0].sent.bytes,
              (ranks - 1) * 2 * tokens * size * 4 / ranks);
  ledger.line("busiest pairs, one block each", plain_time, 58);
  ledger.line("busiest pairs, from both ends: 1 / n of all", balanced_time,
              tokens * (tokens + 1) / 2 / ranks);
  return toy::status(correct && ledger.agrees());
}
