#include <dhp/comm/gather.hpp>
#include <tests/comm/ranks.hpp>

TEST_CASE("gather: every rank gets the numbers and texts of all ranks") {
  for (const int ranks : {1, 2, 3}) {
    const auto texts = on_ranks(ranks, [](Comm<Cpu>& world, Cpu& dev) {
      const auto own = std::string(static_cast<std::size_t>(1000 * world.rank()), 'x');
      auto all = gather_texts(dev, world, own + std::string("\0\n", 2));
      for (const double value : gather(dev, world, {1.5 * world.rank(), -1}))
        all.push_back(concat(value));
      return all;
    });
    for (const auto& found : texts) {
      REQUIRE(found.size() == static_cast<std::size_t>(3 * ranks));
      for (int rank = 0; rank < ranks; ++rank) {
        const auto at = static_cast<std::size_t>(rank);
        CHECK(found[at].size() == static_cast<std::size_t>(1000 * rank + 2));
        CHECK(found[at].back() == '\n');
        CHECK(found[static_cast<std::size_t>(ranks) + 2 * at] == concat(1.5 * rank));
        CHECK(found[static_cast<std::size_t>(ranks) + 2 * at + 1] == "-1");
      }
    }
  }
}
