// Cuts of layers into stages, compared with every possible cut.
#include <dhp/comm/launch.hpp>
#include <dhp/cpu.hpp>
#include <dhp/nn/activation.hpp>
#include <dhp/parallel/partition.hpp>
#include <tests/support/regression.hpp>

namespace {

double dearest_part(const std::vector<double>& costs, const std::vector<std::int64_t>& cuts) {
  double dearest = 0;
  for (std::size_t part = 0; part + 1 < cuts.size(); ++part) {
    double cost = 0;
    for (auto at = cuts[part]; at < cuts[part + 1]; ++at)
      cost += costs[static_cast<std::size_t>(at)];
    dearest = std::max(dearest, cost);
  }
  return dearest;
}

// The lowest possible cost of the most expensive part, found by trying all cuts.
double best_by_trial(const std::vector<double>& costs, std::vector<std::int64_t>& cuts, int parts) {
  const auto layers = static_cast<std::int64_t>(costs.size());
  if (static_cast<int>(cuts.size()) == parts) {
    auto complete = cuts;
    complete.push_back(layers);
    return dearest_part(costs, complete);
  }
  double best = HUGE_VAL;
  for (auto next = cuts.back() + 1; next < layers; ++next) {
    cuts.push_back(next);
    best = std::min(best, best_by_trial(costs, cuts, parts));
    cuts.pop_back();
  }
  return best;
}

}  // namespace

TEST_CASE("cut_layers: no other cut has a cheaper most expensive part") {
  const RandomStream random{.seed = 5};
  std::uint64_t at = 0;
  for (int layers = 1; layers <= 9; ++layers)
    for (int parts = 1; parts <= layers; ++parts)
      for (int round = 0; round < 8; ++round) {
        std::vector<double> costs;
        // Some layers cost nothing. In the last round, one layer costs more than all others together.
        for (int layer = 0; layer < layers; ++layer)
          costs.push_back(static_cast<double>(random.below(round % 2 == 0 ? 3 : 100, at++)));
        if (round == 7) costs[static_cast<std::size_t>(layers / 2)] = 1e6;
        const auto cuts = cut_layers(costs, parts);
        REQUIRE(cuts.size() == static_cast<std::size_t>(parts) + 1);
        CHECK(cuts.front() == 0);
        CHECK(cuts.back() == layers);
        for (std::size_t part = 0; part + 1 < cuts.size(); ++part)
          CHECK(cuts[part] < cuts[part + 1]);
        std::vector<std::int64_t> begun{0};
        CHECK(dearest_part(costs, cuts) == best_by_trial(costs, begun, parts));
      }
}

TEST_CASE("cut_layers refuses more parts than layers") {
  CHECK(has(message_of([] { (void)cut_layers({1, 1}, 3); }), "3 parts for 2 layers"));
  CHECK(has(message_of([] { (void)cut_layers({1, 1}, 0); }), "0 parts"));
  CHECK(has(message_of([] { (void)cut_layers({}, 1); }), "0 layers"));
}

TEST_CASE("computed costs are the FLOP of each layer for its shapes") {
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  Model<Cpu> model;
  model.add("wide", Linear<Cpu>(build, "wide", {.in = 4, .out = 10}));
  model.add("relu", relu<Cpu>());
  model.add("narrow", Linear<Cpu>(build, "narrow", {.in = 10, .out = 2}));
  model.loss = MeanSquaredError<Cpu>();
  Cpu dev;
  MicroBatch<Cpu> batch;
  batch.samples = 3;
  batch.input = random_tensor<float>(dev, {3, 4}, 0);
  const auto costs = detail::computed_costs(model, batch);
  REQUIRE(costs.size() == 3);
  CHECK(costs[0] == 2.0 * 3 * 4 * 10);
  CHECK(costs[1] > 0);
  CHECK(costs[2] == 2.0 * 3 * 10 * 2 + 3 * 3 * 2);  // with the loss
}

TEST_CASE("measured costs find the expensive layer") {
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  Model<Cpu> model;
  model.add("cheap", Linear<Cpu>(build, "cheap", {.in = 8, .out = 256}));
  model.add("dear", Linear<Cpu>(build, "dear", {.in = 256, .out = 2048}));
  model.loss = MeanSquaredError<Cpu>();
  Cpu dev;
  const auto batch = regression_batch(0, random_tensor<float>(dev, {64, 8}, 0),
                                      random_tensor<float>(dev, {64, 2048}, 1));
  const auto costs = detail::measured_costs(dev, model, batch);
  REQUIRE(costs.size() == 2);
  CHECK(costs[0] > 0);
  CHECK(costs[1] > costs[0]);  // 256 times the work
}

TEST_CASE("all ranks cut where rank 0 does") {
  run_ranks(3, [](Comm<Cpu> world) {
    Cpu dev;
    // Measured costs differ from rank to rank.
    const std::vector<double> costs =
        world.rank() == 0 ? std::vector<double>{1, 1, 1, 9} : std::vector<double>{9, 1, 1, 1};
    CHECK(detail::agree_on_cuts(dev, world, costs, 2) == std::vector<std::int64_t>{0, 3, 4});
  });
}
