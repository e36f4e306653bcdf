// Random numbers: Philox's published test vectors, and the statistics of the distributions.
#include <dhp/core/rng.hpp>
#include <tests/support/test.hpp>

using Words = std::array<std::uint32_t, 4>;

TEST_CASE("rng: matches known answers of Philox 4x32-10") {
  // Random123's test vectors: counter and key all zeros, all ones, and digits of pi.
  CHECK(dhp::detail::philox({}, {}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  constexpr std::uint32_t ones = 0xffffffff;
  CHECK(dhp::detail::philox({ones, ones, ones, ones}, {ones, ones}) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(dhp::detail::philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                            {0xa4093822, 0x299f31d0}) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("rng: seed, step, use and index all change the block, also their high bits") {
  const RandomStream base{.seed = 1, .series = 2, .use = 3};
  std::set<Words> blocks{base.block(0)};
  for (const RandomStream& other :
       {RandomStream{.seed = 2, .series = 2, .use = 3},
        RandomStream{.seed = 1 + (std::uint64_t{1} << 32), .series = 2, .use = 3},
        RandomStream{.seed = 1, .series = 3, .use = 3},
        RandomStream{.seed = 1, .series = 2, .use = 4},
        RandomStream{.seed = 1, .series = 3, .use = 2}})
    CHECK(blocks.insert(other.block(0)).second);
  CHECK(blocks.insert(base.block(1)).second);
  CHECK(blocks.insert(base.block(std::uint64_t{1} << 32)).second);
  for (std::uint64_t index = 0; index < 8; ++index) {
    CHECK(base.bits(index) == base.block(index / 4)[index % 4]);
    CHECK((base.short_bits(2 * index) | base.short_bits(2 * index + 1) << 16) == base.bits(index));
  }
}

TEST_CASE("rng: uniform, below and normal have their ranges and moments") {
  const RandomStream stream{.seed = 5};
  constexpr std::uint64_t count = 200000;
  double uniform = 0, normal = 0, squares = 0, cubes = 0;
  std::vector<int> drawn(7);
  for (std::uint64_t index = 0; index < count; ++index) {
    const double u = stream.uniform(index);
    CHECK((u >= 0 && u < 1));
    CHECK(static_cast<double>(static_cast<float>(u)) == u);  // exact in float, too
    uniform += u;
    const double n = stream.normal(index);
    normal += n;
    squares += n * n;
    cubes += n * n * n;
    ++drawn[stream.below(7, index)];
  }
  // The count is within five standard deviations of its expected value.
  const double root = std::sqrt(static_cast<double>(count));
  CHECK(std::abs(uniform / count - 0.5) < 5 * std::sqrt(1.0 / 12) / root);
  CHECK(std::abs(normal / count) < 5 / root);
  CHECK(std::abs(squares / count - 1) < 5 * std::sqrt(2.0) / root);
  CHECK(std::abs(cubes / count) < 5 * std::sqrt(15.0) / root);
  for (const int times : drawn) CHECK(std::abs(times - count / 7.0) < 5 * std::sqrt(count / 7.0));
  CHECK(stream.below(1, 3) == 0);
}

TEST_CASE("rng: mix is splitmix64") {
  CHECK(dhp::mix(0) == 0xE220A8397B1DCDAFu);  // splitmix64's first number from seed 0
}
