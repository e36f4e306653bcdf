#include <dhp/device/cpu.hpp>
#include <tests/support/test.hpp>

#include <sys/mman.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <memory_resource>
#include <sstream>

TEST_CASE("cpu: blocks are aligned to 64 bytes, reused when freed, and may outlive the device") {
  std::shared_ptr<std::byte> last;
  Cpu dev;
  for (const std::size_t bytes : {0, 1, 63, 513, 100000}) {
    auto block = dev.allocate(bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(block.get()) % 64 == 0);
    dev.fill_zero(block.get(), bytes);
    const auto* place = block.get();
    const auto other = dev.allocate(bytes);
    CHECK(other.get() != place);  // the first block is still in use
    block.reset();
    CHECK(dev.allocate(bytes).get() == place);
    last = other;
  }
}

TEST_CASE("cpu: Linux is asked for huge pages for large blocks") {
  constexpr std::size_t page = 2 << 20;
  const auto asked_for_huge = [](const void* data) {
    const auto place = reinterpret_cast<std::uintptr_t>(data);
    bool here = false;
    std::string line;
    for (std::ifstream maps("/proc/self/smaps"); std::getline(maps, line);) {
      std::uintptr_t first = 0, last = 0;
      char dash = 0;
      if (std::istringstream(line) >> std::hex >> first >> dash >> last && dash == '-')
        here = first <= place && place < last;
      if (here && line.starts_with("VmFlags:"))
        return (line + ' ').find(" hg ") != std::string::npos;
    }
    return false;
  };
  Cpu dev;
  const auto block = dev.allocate(5 * page);
  CHECK(reinterpret_cast<std::uintptr_t>(block.get()) % page == 0);
  // An emulator or a kernel without huge pages takes no such wish, from nobody.
  const std::unique_ptr<void, decltype(&std::free)> own(std::aligned_alloc(page, 5 * page),
                                                        &std::free);
  madvise(own.get(), 5 * page, MADV_HUGEPAGE);
  CHECK(asked_for_huge(block.get()) == asked_for_huge(own.get()));
}

TEST_CASE("cpu: counts bytes in use, cached bytes and their peak") {
  Cpu dev;
  const auto& memory = dev.memory();
  auto block = dev.allocate(1000);
  const auto size = memory.in_use_bytes();
  CHECK((size >= 1000 && size <= 1125));
  auto persistent = dev.allocate_persistent(1000);
  CHECK(reinterpret_cast<std::uintptr_t>(persistent.get()) % 64 == 0);
  CHECK(memory.held_bytes() == size + 1000);
  persistent.reset();  // this block is not cached
  block.reset();       // this block is cached
  CHECK(memory.in_use_bytes() == 0);
  CHECK(memory.held_bytes() == size);
  CHECK(memory.max_held_bytes() == size + 1000);
  block = dev.allocate(1000);
  CHECK(memory.held_bytes() == size);
  auto freed = dev.allocate(5000);
  freed.reset();
  dev.memory().trim();  // blocks in use stay
  CHECK(memory.held_bytes() == size);
  block.reset();
  dev.memory().trim();
  CHECK(memory.held_bytes() == 0);
}

TEST_CASE("cpu: a host program's memory resource provides all memory and gets each block back") {
  class Host final : public std::pmr::memory_resource {
   public:
    std::size_t asked = 0, in_use = 0;
    bool full = false;

   private:
    void* do_allocate(std::size_t bytes, std::size_t alignment) override {
      if (full) throw std::bad_alloc();
      ++asked, in_use += bytes;
      return std::pmr::new_delete_resource()->allocate(bytes, alignment);
    }
    void do_deallocate(void* data, std::size_t bytes, std::size_t alignment) override {
      in_use -= bytes;
      std::pmr::new_delete_resource()->deallocate(data, bytes, alignment);
    }
    [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override {
      return this == &other;
    }
  };
  Host host;
  std::optional<Cpu> dev(std::in_place, dhp::CpuOptions{.memory = &host});
  auto block = dev->allocate(100), none = dev->allocate(0);
  CHECK(reinterpret_cast<std::uintptr_t>(block.get()) % 64 == 0);
  CHECK(none != nullptr);
  CHECK(host.in_use == 101);
  CHECK(dev->memory().held_bytes() == 101);
  none.reset();
  CHECK(host.in_use == 100);
  CHECK(dev->allocate(1) != nullptr);
  CHECK(host.asked == 3);
  host.full = true;
  CHECK_THROWS_WITH_AS(
      (void)dev->allocate(7),
      Contains("cannot allocate 7 bytes for a tensor in the host program's memory"), dhp::Error);
  dev.reset();
  block.reset();  // the block may outlive the device
  CHECK(host.in_use == 0);
}

// The device cannot be moved, because runs and communicators keep references to it.
static_assert(!std::is_move_constructible_v<Cpu> && !std::is_move_assignable_v<Cpu>);

TEST_CASE("cpu: an impossible allocation is refused with a sentence") {
  Cpu dev;
  (void)dev.allocate(1000);  // is cached
  CHECK_THROWS_WITH_AS((void)dev.allocate(std::size_t{1} << 60), Contains("out of memory"),
                       dhp::Error);
  CHECK(dev.memory().held_bytes() == 0);  // the cache was given back first
}

TEST_CASE("cpu: for_ranges covers all once, in ranges of at most a tile") {
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
