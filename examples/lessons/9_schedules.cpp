// Lesson 9: schedules. In lesson 8 the first stage waits for the first gradient: it is *idle*. A schedule is the order
// of each stage's work, a list of F (forward), B (backward, or only its input gradient) and W (weight gradients). dhp
// draws a schedule, proves that no message is missing and no stage waits forever, and runs it. Here: how long a stage
// is idle, and why.
#include "lesson.hpp"

#include <algorithm>
#include <cmath>

using toy::Dev;
constexpr int stages = 3;
constexpr int micro_batches = 6;
constexpr int steps = 20;
constexpr std::int64_t rows = 16, columns = 16;

/// Six equal layers, so that all parts of the model take equally long and all boundaries carry equally much.
dhp::Model<Dev> network(dhp::ModelBuilder<Dev>& build) {
  dhp::Model<Dev> model;
  for (const auto* name : {"1", "2", "3", "4", "5", "6"})
    model.add(name, dhp::Linear<Dev>(
                        build, name,
                        {.in = columns, .out = columns, .weight_init = dhp::he_normal(columns)}));
  model.loss = dhp::MeanSquaredError<Dev>();
  return model;
}

struct Seen {
  std::vector<double> losses{};
  std::int64_t sent_bytes = 0;  // bytes of messages in all steps
};

Seen train(dhp::Comm<Dev> plain_world, const dhp::PipelineOptions& pipeline) {
  auto [dev, counts, world] = toy::CountedRank(plain_world);
  const auto batches = toy::noise_batches(dev, micro_batches, rows, columns, columns);
  dhp::TrainingRun run(dev, world,
                       {.layout = {.pipeline = plain_world.size()}, .pipeline = pipeline}, network,
                       batches.front());
  Seen seen;
  for (int step = 0; step < steps; ++step) seen.losses.push_back(run.step(batches).loss);
  seen.sent_bytes = counts->of(toy::all_ranks(plain_world.size()), dhp::CallKind::send).bytes;
  return seen;
}

/// A schedule with one micro-batch in flight at a time.
std::vector<dhp::Action> one_at_a_time(int, int, int batches, int) {
  std::vector<dhp::Action> list;
  for (int m = 0; m < batches; ++m) {
    list.push_back({dhp::Action::Kind::forward, 0, m});
    list.push_back({dhp::Action::Kind::backward, 0, m});
  }
  return list;
}

/// Returns the largest number of forward passes that wait for their backward pass: the stage keeps their activations.
int max_in_flight(const std::vector<dhp::Action>& list) {
  int now = 0, most = 0;
  for (const auto& action : list) {
    if (action.kind == dhp::Action::Kind::forward) most = std::max(most, ++now);
    else if (action.kind != dhp::Action::Kind::backward_weight) --now;
  }
  return most;
}

int main() {
  struct Case {
    dhp::AnySchedule schedule;
    int chunks;     // parts of the model for each stage
    double idle;    // idle share of the time, by derivation
    int in_flight;  // max_in_flight() of stage 0
  };
  constexpr double s = stages, m = micro_batches, v = 2;
  const Case cases[] = {
      {{"one at a time", one_at_a_time}, 1, (s - 1) / s, 1},
      {dhp::GPipe{}, 1, (s - 1) / (m + s - 1), micro_batches},
      {dhp::OneForwardOneBackward{}, 1, (s - 1) / (m + s - 1), stages},
      {dhp::Interleaved{}, 2, (s - 1) / (v * m + s - 1), 2 * stages - 1 + (2 - 1) * stages},
      {dhp::ZeroBubble{}, 1, (s - 1) / (3 * m + s - 1), stages},
      {dhp::ZeroBubbleV{}, 2, (s - 1) / (6 * m + s - 1), 2 * stages},
      {dhp::DualPipeV{}, 2, (s - 1) / (6 * m + s - 1), 2 * stages + 1},
  };
  const auto serial = toy::on_each_rank(1, train, dhp::PipelineOptions{})[0];

  bool correct = true;
  for (const auto& [schedule, chunks, idle, in_flight] : cases) {
    const auto lists = dhp::all_stages(schedule, stages, micro_batches, chunks);
    (void)dhp::check_schedule(lists, chunks, micro_batches, 4);  // throws if the schedule is wrong
    const auto times = dhp::simulate(lists);
    std::printf("%s\n%s", schedule.name().c_str(), dhp::draw(lists).c_str());
    const dhp::PipelineOptions options{.schedule = schedule, .chunks = chunks};
    const auto ranks = toy::on_each_rank(stages, train, options);
    std::int64_t sent_bytes = 0;
    for (const auto& rank : ranks) sent_bytes += rank.sent_bytes;
    const bool same = std::abs(ranks[0].losses.back() - serial.losses.back()) < 1e-6;

    // Each micro-batch's activation and its gradient cross every boundary between stages.
    const std::int64_t boundaries = stages * chunks - 1 - (schedule.v_shaped() ? 1 : 0);
    toy::Ledger ledger("of a step");
    ledger.line("all stages: bytes sent in messages, per step", sent_bytes / steps,
                2 * micro_batches * boundaries * 4 * rows * columns);
    ledger.line("stage 0: parts of micro-batches kept at most", max_in_flight(lists[0]), in_flight);
    ledger.line("idle, in thousandths of the time", std::lround(1000 * times.idle_share[0]),
                std::lround(1000 * idle));
    std::printf("loss %.6f -> %.6f, %s\n\n", ranks[0].losses.front(), ranks[0].losses.back(),
                same ? "as on one rank" : "not as on one rank");
    correct = correct && same && ledger.agrees();
  }
  return toy::status(correct);
}
