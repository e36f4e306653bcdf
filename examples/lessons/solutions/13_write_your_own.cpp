// Solutions of lesson 13. 1: a reducer that gathers all gradients and adds them itself. 2: a schedule, rejected and
// corrected.
#include <dhp/parallel/schedule_check.hpp>
#include <dhp/parallel/schedule_time.hpp>

#include "toy.hpp"

using toy::Dev;

struct Gathered {};

/// Every replica sends its whole gradient to all others; each adds all gradients in rank order.
class GatheringReducer {
 public:
  GatheringReducer(Dev& dev, dhp::ParameterStore<Dev>& store, dhp::Comm<Dev> group)
      : dev_(&dev), store_(&store), group_(std::move(group)) {}
  void ready(dhp::Range) {}
  void finish() {
    const auto mine = store_->gradients();
    dhp::Tensor<Dev> all(*dev_, mine.dtype(), {group_.size(), mine.count()});
    group_.all_gather(*dev_, mine, all.mut()).wait();
    fill(*dev_, mine, 0);
    for (int rank = 0; rank < group_.size(); ++rank)
      axpy(*dev_, 1, all.view().slice(rank, rank + 1), mine.as({1, mine.count()}));
  }

 private:
  Dev* dev_;
  dhp::ParameterStore<Dev>* store_;
  dhp::Comm<Dev> group_;
};
GatheringReducer make_reducer(Dev& dev, dhp::ParameterStore<Dev>& store, dhp::Comm<Dev> group,
                              Gathered) {
  return {dev, store, std::move(group)};
}

struct Seen {
  double loss = 0;
  double gathered_bytes = 0, reduced_bytes = 0;  // bytes sent in one step
  std::int64_t parameters = 0;
};

Seen train(dhp::Comm<Dev> plain_world, auto reducer) {
  auto [dev, counts, world] = toy::CountedRank(plain_world);
  const int replicas = world.size();
  const auto all = toy::batches(dev, 4);
  const dhp::TrainingOptionsOf<std::variant<decltype(reducer)>, dhp::OptimizerChoice> options{
      .layout = {.data = replicas},
      .reducer = reducer,
      .optimizer = dhp::AdamWOptions{.weight_decay = 0},
      .trainer = {.learning_rate = {.peak = 0.01}}};
  dhp::TrainingRun run(dev, world, options, toy::network, all.front());
  Seen seen;
  for (int step = 0; step < 20; ++step) {
    counts->reset();
    seen.loss = run.step(all).loss;
  }
  const auto bytes = [&](dhp::CallKind kind) {
    return dhp::sent_bytes(kind, counts->of(toy::all_ranks(replicas), kind).bytes, replicas);
  };
  seen.gathered_bytes = bytes(dhp::CallKind::all_gather);
  seen.reduced_bytes = bytes(dhp::CallKind::all_reduce);
  seen.parameters = run.store().size();
  return seen;
}

/// A schedule with two micro-batches at a time. mistaken: the last stage does their backward passes in the other order.
std::vector<dhp::Action> two_at_a_time(bool mistaken, int stage, int stages, int micro_batches) {
  using Kind = dhp::Action::Kind;
  std::vector<dhp::Action> list;
  for (int m = 0; m < micro_batches; m += 2) {
    const int second = std::min(m + 1, micro_batches - 1);
    for (int k = m; k <= second; ++k) list.push_back({Kind::forward, 0, k});
    const bool swap = mistaken && stage == stages - 1;
    for (int k = m; k <= second; ++k)
      list.push_back({Kind::backward, 0, swap ? m + second - k : k});
  }
  return list;
}

int main() {
  // Exercise 1.
  constexpr int ranks = 4;
  const auto gathered = toy::on_each_rank(ranks, train<Gathered>, Gathered{})[0];
  const auto plain = toy::on_each_rank(ranks, train<dhp::Plain>, dhp::Plain{})[0];
  std::printf("loss after 20 steps: %.8f gathered, %.8f all-reduced\n", gathered.loss, plain.loss);
  toy::Ledger ledger;
  const auto gradient = 4.0 * static_cast<double>(plain.parameters);
  const double numbers = 8 + 32 * (4 + 1);  // bytes of a count and of losses
  ledger.line("gathered: (n - 1) times the gradient", gathered.gathered_bytes,
              (ranks - 1) * gradient);
  ledger.line("all-reduced: 2 (n - 1) / n of it, and numbers", plain.reduced_bytes,
              1.5 * (gradient + numbers));

  // Exercise 2.
  std::string sentence;
  for (const bool mistaken : {true, false}) {
    const dhp::AnySchedule schedule("two at a time", [=](int stage, int stages, int batches, int) {
      return two_at_a_time(mistaken, stage, stages, batches);
    });
    const auto lists = dhp::all_stages(schedule, 3, 4, 1);
    try {
      (void)dhp::check_schedule(lists, 1, 4, 4);
      std::printf("%s", dhp::draw(lists).c_str());
    } catch (const dhp::Error& error) {
      sentence = error.sentence();
      std::printf("refused: %s\n", sentence.c_str());
    }
  }
  const bool same = std::abs(gathered.loss - plain.loss) < 1e-6;
  return toy::status(same && ledger.agrees() && !sentence.empty());
}
