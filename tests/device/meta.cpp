#include <dhp/device/meta.hpp>
#include <tests/support/test.hpp>

namespace {

TEST_CASE("meta: memory is counted as that of a caching allocator, and not used") {
  Meta dev;
  const auto& memory = dev.memory();
  constexpr std::size_t much = std::size_t{1} << 36;  // more than the machine has
  {
    const auto a = dev.allocate(much);
    CHECK(memory.in_use_bytes() == much);
    CHECK(a.get()[much - 1] == std::byte{0});
  }
  CHECK(memory.in_use_bytes() == 0);
  CHECK(memory.held_bytes() == much);
  const auto again = dev.allocate(much), small = dev.allocate(1);
  CHECK(memory.held_bytes() == much + 512);
  CHECK(memory.most_held_bytes() == much + 512);
}

TEST_CASE("meta: persistent blocks have their size, and are not kept") {
  Meta dev;
  auto block = dev.allocate_persistent(1'000'001);
  CHECK(dev.memory().held_bytes() == 1'000'001);
  block.reset();
  CHECK(dev.memory().held_bytes() == 0);
  const auto other = dev.allocate(1'000'001);
  CHECK(dev.memory().held_bytes() > 1'000'001);
}

TEST_CASE("meta: a few numbers are there, many are not") {
  Meta dev;
  for (const std::size_t bytes : {std::size_t{64}, 2 * dhp::MetaMemory::small_bytes}) {
    std::vector<std::byte> from(bytes, std::byte{7}), to(bytes);
    const auto there = dev.allocate(bytes);
    dev.copy_from_host(there.get(), from.data(), bytes);
    dev.copy_to_host(to.data(), there.get(), bytes);
    CHECK((to == from) == (bytes == 64));
  }
}

TEST_CASE("meta: says in which scopes most is in use") {
  Meta dev;
  const auto weights = dev.allocate(100);
  {
    const auto step = dev.scope("step", 1, dhp::TraceKind::step);
    {
      const auto forward = dev.scope(std::string("forward"));
      const auto x = dev.allocate(5000);
    }
    const auto backward = dev.scope(std::string("backward"));
    const auto y = dev.allocate(1000), z = dev.allocate(1000);
  }
  CHECK(dev.memory().most_in_use_in() == std::vector<std::string>{"step 1", "forward"});
}

}  // namespace
