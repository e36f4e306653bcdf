#include <examples/report/run_summary.hpp>
#include <tests/support/test.hpp>

using namespace examples;
using std::chrono::milliseconds;

TEST_CASE("parts of a run: together they are the wall time, and waits are not compute") {
  const auto waits = std::make_shared<dhp::WaitClock>();
  using Clock = std::chrono::steady_clock;
  const auto before = Clock::now();
  TimeParts parts(waits);
  const auto begin = Clock::now();
  const auto wait = [&](dhp::WaitClock::Of of) {
    const dhp::WaitClock::Scope scope(waits.get(), of);
    std::this_thread::sleep_for(milliseconds(10));
  };
  wait(dhp::WaitClock::messages);  // before any part
  parts.enter(Part::compute);
  std::this_thread::sleep_for(milliseconds(10));
  wait(dhp::WaitClock::collectives);
  wait(dhp::WaitClock::messages);
  wait(dhp::WaitClock::messages);
  {
    const TimeParts::In reading(parts, Part::data);
    wait(dhp::WaitClock::collectives);
  }
  parts.enter(Part::rest);
  const auto end = Clock::now();
  const auto seconds = parts.seconds();
  const auto after = Clock::now();
  const double sum_s = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  CHECK(sum_s >= std::chrono::duration<double>(end - begin).count() - 1e-6);
  CHECK(sum_s <= std::chrono::duration<double>(after - before).count() + 1e-6);
  CHECK(seconds[0] >= 0.01);
  CHECK(seconds[1] >= 0.01);
  CHECK(seconds[2] >= 0.02);
  CHECK(seconds[3] >= 0.01);
  CHECK(seconds[4] == 0);
  CHECK(seconds[6] >= 0.01);
}

TEST_CASE("best values: losses are best if low, accuracies if high, with their step") {
  BestValues values;
  for (const auto& [step, loss, top1] : {std::tuple{1, 3.0, 0.1}, {2, 1.0, 0.5}, {3, 2.0, 0.4}}) {
    values.take(step, "loss", loss);
    values.take(step, "held_out_top1", top1);
    values.take(step, "fixed", 7);
  }
  const auto& all = values.all();
  REQUIRE(all.size() == 3);
  CHECK(all[0].last == 2);
  CHECK(all[0].best == 1);
  CHECK(all[0].best_step == 2);
  CHECK(all[1].last == 0.4);
  CHECK(all[1].best == 0.5);
  CHECK(!all[1].stays);
  CHECK(all[2].stays);
}

TEST_CASE("summary: utilization refers to the time in steps") {
  const RunSummary run{.steps_before = 10,
                       .last_step = 20,
                       .ranks = 4,
                       .samples = 320,
                       .forward_flop = 1e15,
                       .seconds = {50, 20, 20, 10, 30, 40, 30},
                       .peak_tflops = 15};
  CHECK(run.wall_s() == 200);
  CHECK(run.steps_s() == 100);
  CHECK(run.flop_per_step() == 3e14);
  CHECK(run.tflops_of_rank() == Approx(7.5));
  CHECK(run.utilization() == Approx(0.5));
}
