// The layouts in which an elastic run can continue. The model, the micro-batches and the ranks' memory decide.
#include <examples/run/layout_planner.hpp>
#include <tests/support/test.hpp>

namespace {

using examples::Dev;
constexpr std::int64_t columns = 8;

struct Rows {
  [[nodiscard]] static std::int64_t size() { return 60; }
  [[nodiscard]] static HostBatch collate(std::span<const std::int64_t> indices, std::int64_t) {
    const auto rows = static_cast<std::int64_t>(indices.size());
    const HostArray values(DType::f32, {rows, columns});
    return {values, {{"targets", values}}, {{"elements", rows * columns}}};
  }
};

/// Four layers with an inner width of 6. A step has 4 micro-batches; the last step of an epoch has 3.
Model<Meta> four_layers(ModelBuilder<Meta>& build, bool) {
  build.place({{"*.in.*", Placement::columns},
               {"*.out.weight", Placement::rows},
               {"*", Placement::replicated}});
  Model<Meta> model;
  for (const auto* name : {"0", "1", "2", "3"})
    model.add(name, FeedForward<Meta>(build, concat(name, ".in"), concat(name, ".out"),
                                      {.columns = columns, .inner = 6}));
  model.loss = MeanSquaredError<Meta>();
  return model;
}

struct Setup {
  examples::TrainingSetup setup{{.train = examples::AnyBatcher(Rows()), .plan_model = four_layers}};
  Setup() {
    setup.options.global_batch = 16;
    setup.options.micro_batch = 4;
    setup.options.optimizer = AdamWOptions{};
    setup.same_shapes = true;
  }
};

}  // namespace

TEST_CASE("layout planner: accepts every layout that the model and the micro-batches allow") {
  Setup result;
  examples::LayoutPlanner planner(result.setup, std::size_t{1} << 30);
  for (int data = 1; data <= 6; ++data)
    for (int tensor = 1; tensor <= 7; ++tensor)
      for (int pipeline = 1; pipeline <= 5; ++pipeline) {
        const MeshShape layout{data, tensor, pipeline};
        INFO(to_text(layout));
        CHECK(planner.step_time(layout).has_value() == (data <= 4 && tensor <= 6 && pipeline <= 4));
      }
  result.setup.waits_for_replicas = true;  // equally many for each replica, in steps of 4 and 3
  examples::LayoutPlanner equal(result.setup, std::size_t{1} << 30);
  CHECK(equal.step_time({1, 2, 2}).has_value());
  CHECK_FALSE(equal.step_time({2, 1, 1}).has_value());
  CHECK_FALSE(equal.step_time({3, 1, 1}).has_value());
}

TEST_CASE("memory planner: counts the inputs of a whole step, even if few micro-batches run") {
  Setup result;
  examples::MemoryPlanner planner(result.setup);
  const auto all = planner.need(planner.layout());
  CHECK(planner.need(planner.layout(), 1) == all);
  result.setup.options.global_batch = 12;
  examples::MemoryPlanner fewer(result.setup);
  CHECK(fewer.need(fewer.layout()) == all - 2 * 512);  // one input and targets, as blocks
}

TEST_CASE("memory planner: counts one step of resident data") {
  struct Longer : Rows {  // longer after the first step
    [[nodiscard]] static HostBatch collate(std::span<const std::int64_t> indices, std::int64_t k) {
      std::vector<std::int64_t> longer(indices[0] < 16 ? 4 : 400);
      return Rows::collate(longer, k);
    }
  };
  Setup result;
  const auto need = [&](const examples::AnyBatcher& train) {
    examples::MemoryPlanner planner(
        {.options = result.setup.options, .train = train, .plan_model = four_layers});
    return planner.need(planner.layout());
  };
  const examples::AnyBatcher longer{Longer()};
  CHECK(need(longer) > need(result.setup.train));
  result.setup.options.data = "synthetic-resident";
  CHECK(need(longer) == need(result.setup.train));
}

TEST_CASE("memory planner: without a cluster's file, GPUs are H100") {
  CHECK(examples::cluster_of({}, true).memory_bytes == 80e9);
}

TEST_CASE("memory planner: a GPU's free blocks can be released, those of a recorded step cannot") {
  Setup result;
  result.setup.options.global_batch = result.setup.options.micro_batch = 48;
  result.setup.ranks = examples::RanksAre::on_gpus;
  for (const bool recorded : {true, false}) {
    result.setup.options.cuda_graphs = recorded;
    examples::MemoryPlanner planner(result.setup);
    const auto plan = planner.plan(planner.layout())[0];
    CHECK((plan.most > plan.max_in_use) == recorded);
  }
}

TEST_CASE("layout planner: communication takes time") {
  Setup result;
  examples::LayoutPlanner planner(result.setup, std::size_t{1} << 30);
  const auto time = [&](const MeshShape& layout) { return planner.step_time(layout).value(); };
  CHECK(time({4, 1, 1}) > time({1, 1, 1}) / 4);
  CHECK(time({1, 4, 1}) > time({1, 1, 1}) / 4);
  CHECK(time({1, 1, 4}) > time({1, 1, 1}) / 4);
}

TEST_CASE("layout planner: uses the smallest memory among the job's first ranks") {
  Setup result;
  const auto allowed = [&](std::size_t bytes) {
    examples::LayoutPlanner planner(result.setup, bytes);
    return planner.step_time({1, 1, 1}).has_value();
  };
  std::size_t least = 1;  // bytes that are enough
  while (!allowed(least)) least *= 2;
  REQUIRE(least > 8000);  // two states: four layers of 110 weights, gradients, two momenta
  run_ranks<Dev>(3, [&](Comm<Dev> world) {
    Dev dev;
    const bool newcomer = world.rank() == 0;
    examples::LayoutPlanner planner(result.setup,
                                    newcomer ? 1 : least * (world.rank() == 1 ? 1 : 9));
    auto old = world.split(newcomer ? -1 : 0, world.rank());
    if (!newcomer) planner.agree_on_limit(dev, old);
    planner.agree_on_limit(dev, world);
    CHECK(planner.step_time({1, 1, 1}).has_value());  // the newcomer's limit does not count
    CHECK(planner.step_time({1, 2, 1}).has_value());
  });
  run_ranks<Dev>(2, [&](Comm<Dev> world) {
    Dev dev;
    examples::LayoutPlanner planner(result.setup, world.rank() == 1 ? least / 2 : least);
    planner.agree_on_limit(dev, world);
    CHECK_FALSE(planner.step_time({1, 1, 1}).has_value());
    CHECK(planner.step_time({1, 2, 2}).has_value());
  });
}
