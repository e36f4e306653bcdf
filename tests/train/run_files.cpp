// A run that ends during a background save, and one that goes on with another seed.
#include <dhp/cpu.hpp>
#include <dhp/train/run_files.hpp>
#include <tests/support/device_ranks.hpp>
#include <tests/support/folder.hpp>

namespace {

Model<Cpu> network(ModelBuilder<Cpu>& build) {
  Model<Cpu> model;
  model.add("first", Linear<Cpu>(build, "first", {.in = 1, .out = 4}));
  model.add("second", Linear<Cpu>(build, "second", {.in = 4, .out = 1}));
  model.loss = MeanSquaredError<Cpu>();
  return model;
}
const FunctionSamples samples(32, [](std::int64_t index) {
  const auto x = static_cast<float>(index);
  return Sample{.input = {x}, .target = {2 * x}};
});

}  // namespace

TEST_CASE("run files: the end of a run waits for a background save, except after a failure") {
  const Folder folder;
  const auto train = [&](const std::string& to, bool fails) {
    on_ranks_of<Cpu>(4, [&](Cpu& dev, Comm<Cpu> world) {
      Loader data(dev, samples, {.global_batch = 8, .micro_batch = 2});
      const TrainingOptions options{.layout = {.data = 2, .pipeline = 2}};
      TrainingRun run(dev, world, options, network, data);
      (void)run.step();
      run.save_in_background(folder / to);
      dhp::check(!fails || world.rank() != 1, "lost");
    });
  };
  for (int time = 0; time < 5; ++time) {
    const auto to = concat("saves ", time);
    train(to, false);
    CHECK(dhp::CheckpointFolder(folder / to).names() == std::vector<std::string>{"step-00000001"});
  }
  CHECK(has(message_of([&] { train("failed", true); }), "rank 1: lost"));
}

TEST_CASE("run files: a run that goes on with another seed is told so") {
  const Folder folder;
  const auto remarks_with = [&](std::uint64_t seed) {
    Cpu dev;
    Loader data(dev, samples, {.global_batch = 8, .micro_batch = 8});
    TrainingRun run(dev, Comm<Cpu>(), TrainingOptions{.store = {.seed = seed}}, network, data);
    if (seed == 1) {
      (void)run.step();
      run.save(folder / "run");
    }
    return run.files().load(folder / "run").remarks;
  };
  CHECK(remarks_with(1).empty());
  const auto remarks = remarks_with(2);
  REQUIRE(remarks.size() == 1);
  CHECK(has(remarks[0], " was saved with the seed 1 and this run has 2: it draws other samples"));
}
