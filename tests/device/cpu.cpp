#include <dhp/device/cpu.hpp>

#include <doctest/doctest.h>

#include <memory>
#include <mutex>
#include <optional>

namespace {

using dhp::Cpu;

TEST_CASE("cpu: blocks are aligned to 64 bytes, and freed ones come again") {
  Cpu dev;
  for (const std::size_t bytes : {0, 1, 63, 513, 100000}) {
    auto block = dev.allocate(bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(block.get()) % 64 == 0);
    dev.fill_zero(block.get(), bytes);
    const auto* place = block.get();
    const auto other = dev.allocate(bytes);
    CHECK(other.get() != place);  // both are in use
    block.reset();
    CHECK(dev.allocate(bytes).get() == place);
  }
}

TEST_CASE("cpu: memory may outlive its device") {
  std::optional<Cpu> dev(std::in_place);
  auto block = dev->allocate(100);
  dev.reset();
  block.get()[99] = std::byte{1};
  block.reset();
}

TEST_CASE("cpu: more than there is, is refused in a sentence") {
  Cpu dev;
  CHECK_THROWS_WITH_AS((void)dev.allocate(std::size_t{1} << 60), doctest::Contains("out of memory"),
                       dhp::Error);
}

TEST_CASE("cpu: ranges cover all once, in pieces of at most a tile") {
  for (const int threads : {1, 3}) {
    Cpu dev({.threads = threads});
    CHECK(dev.threads() == threads);
    for (const std::int64_t count : {0, 1, 9, 10, 11, 95}) {
      std::vector<int> times(static_cast<std::size_t>(count));
      std::mutex mutex;
      dev.for_ranges(count, 10, [&](std::int64_t first, std::int64_t last) {
        const std::lock_guard lock(mutex);
        CHECK((first % 10 == 0 && last - first <= 10 && first < last));
        for (auto at = first; at < last; ++at) ++times[static_cast<std::size_t>(at)];
      });
      CHECK(times == std::vector<int>(static_cast<std::size_t>(count), 1));
    }
  }
}

}  // namespace
