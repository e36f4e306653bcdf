// The plan beside what the allocator of a real run counts, for everything at once, in all layouts.
#include <dhp/train/memory_plan.hpp>
#include <tests/support/everything.hpp>
#include <tests/support/device_ranks.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <mutex>
#include <vector>

using namespace dhp;
using namespace tests;

namespace {

constexpr std::int64_t micro_batches = 8;

TrainingOptions options_of(MeshShape layout, ZeroStage stage, DType compute = DType::f32) {
  return {.layout = layout,
          .store = {.compute = compute, .sharding = {stage, 4096}},
          .reducer = Bucketed{.bytes = 4096}};
}
PlannedRun planned(const TrainingOptions& options, bool recompute = false) {
  return {.options = options,
          .describe =
              [recompute](ModelBuilder<Meta>& build) {
                return everything<Meta>(build, {.recompute = recompute});
              },
          .batch =
              [](Meta& dev, std::int64_t k) {
                return everything_batch(dev, 0, k, 64, everything_samples, true);
              },
          .micro_batches = micro_batches};
}

struct Counted {
  std::size_t at_rest = 0;
  std::size_t most = 0;
};
/// By stage, of the first replica and tensor rank.
std::vector<Counted> counted(const TrainingOptions& options, bool recompute = false) {
  const auto& layout = options.layout;
  std::vector<Counted> found(static_cast<std::size_t>(layout.pipeline));
  std::mutex mutex;
  on_ranks_of<Cpu>(layout.size(), [&](Cpu& dev, Comm<Cpu> world) {
    const auto batch = [&](std::int64_t k) {
      return everything_batch(dev, 0, k, 64, everything_samples, true);
    };
    TrainingRun<Cpu> run(
        dev, std::move(world), options,
        [&](ModelBuilder<Cpu>& build) { return everything<Cpu>(build, {.recompute = recompute}); },
        batch(0));
    auto& mesh = run.mesh();
    StepBatches<Cpu> mine;
    mine.micro_batches = micro_batches;
    mine.same_shapes = true;
    const auto share = part_of(micro_batches, layout.data, mesh.data_index());
    for (auto k = share.first; k < share.last; ++k) mine.batches.push_back(batch(k));
    (void)run.step(mine);
    run.store().settle(dev);
    const std::lock_guard lock(mutex);
    if (mesh.data_index() == 0 && mesh.tensor_index() == 0)
      found[static_cast<std::size_t>(mesh.pipeline_index())] = {dev.memory().in_use_bytes(),
                                                                dev.memory().most_held_bytes()};
  });
  return found;
}

}  // namespace

TEST_CASE("memory plan: what the allocator of the run counts, at rest and at the peak") {
  using enum ZeroStage;
  for (const auto& [layout, stage] :
       {std::pair{MeshShape{}, none}, {MeshShape{.data = 2}, none}, {MeshShape{.tensor = 2}, none},
        {MeshShape{.pipeline = 3}, none}, {MeshShape{.data = 4}, optimizer},
        {MeshShape{.data = 4}, gradients}, {MeshShape{.data = 4}, weights},
        {MeshShape{.data = 2, .tensor = 2, .pipeline = 2}, weights}})
    for (const auto compute : {DType::f32, DType::bf16}) {
      const auto options = options_of(layout, stage, compute);
      const auto found = counted(options);
      for (int at = 0; at < layout.pipeline; ++at) {
        const auto plan = plan_memory(planned(options), at);
        const auto& real = found[static_cast<std::size_t>(at)];
        CAPTURE(to_text(layout));
        CAPTURE(static_cast<int>(stage));
        CAPTURE(at);
        MESSAGE(to_text(layout), " stage ", static_cast<int>(stage), " ", name_of(compute), " P", at, " rest ", plan.at_rest, " ", real.at_rest, " most ", plan.most,
                " ", real.most, " w ", plan.weights, " g ", plan.gradients, " o ", plan.optimizer, " flight ", plan.in_flight, " ", plan.peak.empty() ? "" : plan.peak.back());
      }
    }
}
