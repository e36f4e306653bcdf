#include <examples/data/data.hpp>
#include <tests/support/test.hpp>

namespace {

struct Numbers {  // sample i is the number i
  [[nodiscard]] std::int64_t size() const { return 3; }
  [[nodiscard]] dhp::HostBatch collate(std::span<const std::int64_t> indices, std::int64_t) const {
    dhp::HostBatch batch;
    for (const auto index : indices) batch.counts.emplace_back("number", index);
    return batch;
  }
};

TEST_CASE("any batcher: first() takes the first samples, repeated() repeats them") {
  const examples::AnyBatcher all{Numbers{}};
  CHECK(all.first(2).size() == 2);
  CHECK(all.first(0).size() == 3);
  const auto more = all.repeated(8);
  CHECK(more.size() == 8);
  const std::vector<std::int64_t> indices{2, 3, 7};
  const auto counts = more.collate(indices, 0).counts;
  CHECK(counts[0].second == 2);
  CHECK(counts[1].second == 0);
  CHECK(counts[2].second == 1);
}

}  // namespace
