#include <dhp/device/meta.hpp>
#include <tests/support/test.hpp>

namespace {

TEST_CASE("meta: memory is counted like that of a caching allocator, without being used") {
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
  CHECK(memory.max_held_bytes() == much + 512);
}

TEST_CASE("meta: persistent blocks have their exact size and are not cached") {
  Meta dev;
  auto block = dev.allocate_persistent(1'000'001);
  CHECK(dev.memory().held_bytes() == 1'000'001);
  block.reset();
  CHECK(dev.memory().held_bytes() == 0);
  const auto other = dev.allocate(1'000'001);
  CHECK(dev.memory().held_bytes() > 1'000'001);
}

TEST_CASE("meta: small blocks hold data, large ones do not") {
  Meta dev;
  for (const std::size_t bytes : {std::size_t{64}, 2 * dhp::detail::MetaMemory::small_bytes}) {
    std::vector<std::byte> from(bytes, std::byte{7}), to(bytes);
    const auto there = dev.allocate(bytes);
    dev.copy_from_host(there.get(), from.data(), bytes);
    dev.copy_to_host(to.data(), there.get(), bytes);
    CHECK((to == from) == (bytes == 64));
  }
}

TEST_CASE("meta: the scopes of the memory peak are known") {
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
  CHECK(dev.memory().max_in_use_in() == std::vector<std::string>{"step 1", "forward"});
}

struct Bytes {
  std::size_t count;
  [[nodiscard]] std::size_t size_bytes() const { return count; }
};

TEST_CASE("meta: work is counted by step, pass and layer, with the memory that a layer keeps") {
  Meta dev;
  {
    const auto step = dev.scope("step", 1, dhp::TraceKind::step);
    const auto forward = dev.scope("forward", 0);
    std::shared_ptr<std::byte> kept;
    {
      const auto layer = dev.scope(std::string("a"));
      kept = dev.allocate(1024);
      const auto deeper = dev.scope(std::string("b"));
      const auto inside = dev.scope(std::string("c"));  // counts as the layer's work
      dev.count_product(7, Bytes{40});
      dev.count_call(5);
    }
    dev.count_launch(3.0, Bytes{8});
  }
  const auto spans = dev.take_spans();
  REQUIRE(spans.size() == 3);
  CHECK(spans[0].name == "a");
  CHECK(spans[0].depth == 2);
  CHECK(spans[0].grown_bytes == 1024);
  const auto& layer = spans[0].count;
  const auto& step = spans[2].count;
  CHECK(std::array{layer.flop, layer.product_bytes, layer.bytes, layer.launches,
                   layer.sent_bytes} == std::array{7.0, 40.0, 0.0, 1.0, 5.0});
  CHECK(std::array{step.flop, step.bytes, step.launches, step.calls} ==
        std::array{7.0, 8.0, 2.0, 1.0});
  CHECK(spans[1].name == "forward 0");
  CHECK(dev.take_spans().empty());
}

}  // namespace
