// Blocks of normals differ from the stream's normals by no more than the promised error, also for extreme words.
#include <dhp/core/normals.hpp>
#include <tests/support/test.hpp>

using dhp::detail::NormalBlock;

TEST_CASE("normals: a block is within its error of the stream's normals") {
  const RandomStream stream{.seed = 0x123456789abcdefu, .series = 3, .use = 5};
  for (const std::uint64_t begin : {std::uint64_t{0}, (std::uint64_t{1} << 32) - 100000}) {
    double worst = 0;
    for (auto first = begin; first < begin + 200000; first += NormalBlock::count) {
      const NormalBlock block(stream, first);
      for (int at = 0; at < NormalBlock::count; ++at) {
        const auto expected = stream.normal(first + static_cast<std::uint64_t>(at));
        worst = std::max(worst, std::abs(block.value[at] - expected) / block.radius[at]);
      }
    }
    CHECK(worst < NormalBlock::error / 2);
    CHECK(worst > 0);  // 0 would mean that both are the same function
  }
}

TEST_CASE("normals: the error bound holds at the ends of the logarithm and the cosine's turns") {
  std::uint32_t u[NormalBlock::count] = {}, v[NormalBlock::count] = {};
  for (std::uint32_t at = 0; at < NormalBlock::count; ++at) {
    // Words are powers of two and their neighbors, also multiplied by sqrt(1/2).
    const auto power = std::uint32_t{1} << at / 8;
    u[at] = at % 8 < 4 ? power + at % 4 - 2
                       : static_cast<std::uint32_t>(power * 1.41421356237309515) + at % 4 - 2;
    // Angles are near multiples of an eighth of a turn.
    v[at] = at / 32 * 0x20000000u + at % 32 - 16;
  }
  const NormalBlock block(u, v);
  for (int at = 0; at < NormalBlock::count; ++at) {
    INFO("u[at] ", u[at], " v[at] ", v[at]);
    const double radius = std::sqrt(-2.0 * std::log((u[at] + 1.0) * 0x1p-32));
    CHECK(std::abs(block.radius[at] - radius) <= 0x1p-50 * radius);
    const double value = radius * std::cos(6.283185307179586 * (v[at] * 0x1p-32));
    CHECK(std::abs(block.value[at] - value) <= NormalBlock::error / 2 * radius);
  }
}
