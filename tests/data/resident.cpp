// Device-resident input: shared, not copied, and assigned as the Loader does.
#include <dhp/data/image_batcher.hpp>
#include <dhp/data/resident.hpp>
#include <dhp/data/synthetic.hpp>
#include <dhp/device/cpu.hpp>

#include <doctest/doctest.h>

namespace {

TEST_CASE("resident: every step is the first one again, out of the same memory") {
  dhp::Cpu cpu;
  const dhp::ImageBatcher batcher(dhp::SyntheticImages({.samples = 4, .height = 4, .width = 4}),
                                  {.height = 4, .width = 4});
  dhp::ResidentLoader<dhp::Cpu> loader(
      cpu, batcher, {.global_batch = 28, .micro_batch = 4, .replica = 1, .replicas = 3});
  const auto first = loader.next().batches;
  const auto second = loader.next().batches;
  CHECK(loader.step() == 2);
  REQUIRE(first.size() == 2);  // 7 micro-batches: 3, 2, 2
  CHECK(first[0].index == 3);
  CHECK(first[1].first_sample == 16);
  for (const std::size_t k : {0, 1}) {
    CHECK(first[k].input.view().bytes() == second[k].input.view().bytes());
    CHECK(first[k].at("labels").view().bytes() == second[k].at("labels").view().bytes());
  }
  CHECK(first[0].input.view().bytes() != first[1].input.view().bytes());
  CHECK(first[0].count_of("samples") == 4);
  CHECK(first[0].samples == 4);
  CHECK(!loader.finished());
  // Fewer samples than a micro-batch: they come again.
  dhp::ResidentLoader<dhp::Cpu> few(cpu, batcher, {.global_batch = 8, .micro_batch = 8});
  CHECK(few.next().batches.front().samples == 8);
}

}  // namespace
