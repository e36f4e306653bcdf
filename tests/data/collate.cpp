// Host arrays and their upload to the device.
#include <dhp/data/collate.hpp>
#include <dhp/device/cpu.hpp>
#include <tests/support/test.hpp>

TEST_CASE("collate: a host batch is uploaded with its place in the step") {
  dhp::Cpu cpu;
  dhp::HostBatch batch;
  batch.input = dhp::HostArray({2, 2}, std::vector<float>{1, 2, 3, 4});
  batch.side.emplace_back("labels", dhp::HostArray({2}, std::vector<std::int32_t>{7, 8}));
  batch.counts.emplace_back("samples", 2);
  const auto result = dhp::upload(cpu, batch, 3, {6, 8});
  CHECK(result.index == 3);
  CHECK(result.first_sample == 6);
  CHECK(result.samples == 2);
  CHECK(result.input.to_host<float>(cpu) == std::vector<float>{1, 2, 3, 4});
  CHECK(result.at("labels").to_host<std::int32_t>(cpu) == std::vector<std::int32_t>{7, 8});
  CHECK(result.count_of("samples") == 2);
}

TEST_CASE("collate: a batch without input stays without") {
  dhp::Cpu cpu;
  CHECK(dhp::upload(cpu, dhp::HostBatch{}, 0, {0, 0}).input.empty());
}

TEST_CASE("collate: arrays know their type and size") {
  dhp::HostArray array(dhp::DType::i32, {3});
  CHECK(array.values<std::int32_t>().size() == 3);
  CHECK_THROWS_AS((void)array.values<float>(), dhp::Error);
  CHECK_THROWS_AS(dhp::HostArray({3}, std::vector<float>{1}), dhp::Error);
}

TEST_CASE("collate: an error names its sample") {
  CHECK_THROWS_WITH_AS(dhp::naming_sample(5, [] { dhp::fail("bad"); }), Contains("sample 5: bad"),
                       dhp::Error);
  CHECK_THROWS_WITH_AS(dhp::naming_sample(5, [] { throw std::runtime_error("odd"); }),
                       Contains("sample 5: odd"), dhp::Error);
  CHECK(dhp::naming_sample(5, [] { return 2; }) == 2);
}
