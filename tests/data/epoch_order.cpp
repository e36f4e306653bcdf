// The order of an epoch has each sample once, for every size and window. Reads within a window stay in few blocks.
#include <dhp/data/epoch_order.hpp>
#include <tests/support/test.hpp>

namespace {

std::vector<std::int64_t> all(const dhp::detail::EpochOrder& order) {
  std::vector<std::int64_t> result;
  for (std::int64_t place = 0; place < order.size(); ++place) result.push_back(order(place));
  return result;
}

TEST_CASE("epoch order: every sample occurs once, for any size and window") {
  for (const std::int64_t size : {0, 1, 2, 3, 5, 8, 17, 64, 65, 100, 1000, 1023})
    for (const std::int64_t window : {0, 1, 2, 3, 4, 7, 16, 50, 63, 64, 100, 999, 5000})
      for (const std::int64_t epoch : {0, 1}) {
        INFO("size ", size, " window ", window);
        const auto order = all(dhp::detail::EpochOrder(size, window, 3, epoch));
        const std::set<std::int64_t> seen(order.begin(), order.end());
        REQUIRE(seen.size() == static_cast<std::size_t>(size));
        if (size > 0) CHECK((*seen.begin() == 0 && *seen.rbegin() == size - 1));
      }
  CHECK_THROWS_AS((void)dhp::detail::EpochOrder(10, 4, 0, 0)(10), dhp::Error);
  CHECK_THROWS_AS((void)dhp::detail::EpochOrder(10, 4, 0, 0)(-1), dhp::Error);
}

TEST_CASE("epoch order: a window has samples of few blocks, and mixes them") {
  for (const std::int64_t size : {1000, 4097, 20011})
    for (const std::int64_t window : {16, 100, 1000, 700}) {
      if (window >= size) continue;
      const dhp::detail::EpochOrder order(size, window, 5, 2);
      const auto samples = all(order);
      std::int64_t neighbors = 0;
      for (std::int64_t first = 0; first < size; first += window) {
        std::set<std::int64_t> blocks;
        for (auto place = first; place < std::min(size, first + window); ++place) {
          blocks.insert(samples[static_cast<std::size_t>(place)] / order.block());
          if (place > first && samples[static_cast<std::size_t>(place)] ==
                                   samples[static_cast<std::size_t>(place - 1)] + 1)
            ++neighbors;
        }
        const auto most = (window + order.block() - 1) / order.block() + 2;
        CHECK(static_cast<std::int64_t>(blocks.size()) <= most);
      }
      CHECK(neighbors < size / window * 3 + 10);  // the expected number is one per window
    }
}

TEST_CASE("epoch order: the order depends on epoch and seed, in blocks and in windows") {
  const auto order = all(dhp::detail::EpochOrder(500, 49, 1, 0));
  CHECK(order == all(dhp::detail::EpochOrder(500, 49, 1, 0)));
  CHECK(order != all(dhp::detail::EpochOrder(500, 49, 1, 1)));
  CHECK(order != all(dhp::detail::EpochOrder(500, 49, 2, 0)));
  for (const std::int64_t window : {0, 500, 501}) {
    const dhp::Permutation whole(500, 1, 0);
    for (std::int64_t place = 0; place < 500; ++place)
      CHECK(dhp::detail::EpochOrder(500, window, 1, 0)(place) == whole(place));
  }
  // The first window has other blocks in another epoch, and each window orders the 7 samples of a block differently.
  const auto now = all(dhp::detail::EpochOrder(490, 49, 1, 0));
  const auto next = all(dhp::detail::EpochOrder(490, 49, 1, 1));
  CHECK(std::set(now.begin(), now.begin() + 49) != std::set(next.begin(), next.begin() + 49));
  CHECK_FALSE(std::equal(now.begin(), now.begin() + 49, now.begin() + 49,
                         [](auto one, auto other) { return one % 7 == other % 7; }));
  // No version may change the order of a seed.
  CHECK(all(dhp::detail::EpochOrder(11, 4, 3, 1)) ==
        std::vector<std::int64_t>{8, 9, 7, 6, 10, 4, 5, 0, 2, 3, 1});
  // Samples have no preferred place: over many epochs, the mean place of a sample is the middle.
  double sum = 0;
  for (std::int64_t epoch = 0; epoch < 400; ++epoch) {
    const auto samples = all(dhp::detail::EpochOrder(103, 10, 1, epoch));
    sum += static_cast<double>(std::find(samples.begin(), samples.end(), 102) - samples.begin());
  }
  CHECK(std::abs(sum / 400 - 51) < 7.5);  // five standard deviations
}

}  // namespace
