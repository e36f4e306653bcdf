// The simulation of a job with failing ranks, against Daly's closed form and cases with exact results.
#include <examples/goodput/goodput.hpp>
#include <tests/support/test.hpp>

namespace {

using examples::GoodputOptions, examples::GoodputSimulation;

/// A failure every hour, and always a spare: the assumptions of the closed form.
GoodputOptions hourly() {
  return {.ranks = 1000,
          .ranks_per_replica = 1,
          .step = 1,
          .duration = 6e6,
          .rank_failure = 3.6e6,
          .repair = 0,
          .spares = 0,
          .save = 60,
          .restart = 120,
          .resize = 20};
}
double goodput(const GoodputOptions& options) { return GoodputSimulation(options).run().useful; }

TEST_CASE("goodput: a restarting job matches Daly's closed form") {
  auto options = hourly();
  for (const double interval : {150., 300., 600., 1200., 2400.}) {
    CAPTURE(interval);
    options.interval = interval;
    const double expected = examples::daly_goodput(interval, 60, 120, 3600);
    CHECK(goodput(options) == Approx(expected).epsilon(0.02));
  }
}

TEST_CASE("goodput: the best interval is Daly's, about sqrt(2 x save x failure interval)") {
  CHECK(examples::daly_interval(60, 3600) == Approx(std::sqrt(2 * 60. * 3600)).epsilon(0.09));
  CHECK(examples::daly_interval(7200, 3600) == 3600);
  const double best = examples::daly_interval(60, 3600);
  const auto closed = [](double interval) {
    return examples::daly_goodput(interval, 60, 120, 3600);
  };
  for (const double other : {0.5, 0.8, 1.25, 2.}) CHECK(closed(best) > closed(other * best));
  auto options = hourly();
  const double with_best = goodput(options);
  CHECK(GoodputSimulation(options).run().interval ==
        std::round(best / options.step) * options.step);
  for (const double other : {0.3, 3.}) {
    options.interval = other * best;
    CHECK(with_best > goodput(options));
  }
}

TEST_CASE("goodput: elastic ranks lose half a step and the pause") {
  auto options = hourly();
  options.elastic = true;
  options.step = 10;
  options.interval = 1e9;
  CHECK(goodput(options) == Approx(1 - (5 + 20) / 3600.).epsilon(0.002));
}

TEST_CASE("goodput: an elastic job of one replica starts again, because no other has its state") {
  auto options = hourly();
  options.ranks_per_replica = options.ranks;
  const double restarted = goodput(options);
  options.elastic = true;
  CHECK(goodput(options) == restarted);
}

TEST_CASE("goodput: shares add up to the whole time, and without failures nothing is lost") {
  auto options = hourly();
  options.rank_failure = 1e15;
  options.interval = 540;
  const auto quiet = GoodputSimulation(options).run();
  CHECK(quiet.useful == Approx(0.9).epsilon(1e-3));
  CHECK(quiet.failures == 0);
  for (const bool elastic : {false, true}) {
    options = hourly();
    options.elastic = elastic;
    options.repair = 7200;
    options.spares = 2;
    options.slow_every = 2e6;
    const auto busy = GoodputSimulation(options).run();
    CHECK(busy.useful + busy.slow + busy.lost + busy.saving + busy.stopped == Approx(1));
    CHECK(busy.slow > 0.01);
    CHECK(busy.lost > 0);
  }
}

TEST_CASE("goodput: ranks that are slow make every step longer") {
  auto options = hourly();
  options.rank_failure = 1e15;
  options.save = 1e-9;
  options.interval = 1e5;
  options.slow_every = 1.8e6;  // 1000 ranks: one begins each half hour and lasts as long
  options.slow_factor = 1.5;
  const double any = 1 - std::exp(-1.);  // P(a server of M/G/inf is busy)
  CHECK(goodput(options) == Approx(1 / (1 - any + 1.5 * any)).epsilon(0.1));
}

TEST_CASE("goodput: a rank that is missing does not fail again") {
  auto options = hourly();
  options.elastic = true;
  options.save = options.resize = 0;
  options.interval = 1e9;
  options.ranks = 100;
  options.rank_failure = 3.6e6;
  for (const double repair : {3.6e5, 3.6e6, 3.6e7}) {
    options.repair = repair;
    options.duration = 200 * repair;
    CHECK(goodput(options) == Approx(3.6e6 / (3.6e6 + repair)).epsilon(0.05));
  }
}

}  // namespace
