// BlockHeap: blocks do not overlap, are dealt out again, and end.
#include <dhp/comm/block_heap.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace {

using dhp::BlockHeap;

TEST_CASE("block_heap: blocks are aligned, inside, and do not overlap") {
  constexpr std::size_t bytes = 1 << 20;
  BlockHeap heap(bytes);
  std::map<std::size_t, std::size_t> taken;  // by offset
  std::uint64_t random = 1;
  for (int round = 0; round < 3000; ++round) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    if (random >> 63 == 0 || taken.empty()) {
      const auto size = static_cast<std::size_t>(random >> 40) % 3000;
      const auto at = heap.take(size);
      REQUIRE(at % BlockHeap::alignment == 0);
      REQUIRE(at + size <= bytes);
      const auto after = taken.lower_bound(at);
      REQUIRE((after == taken.end() || after->first >= at + size));
      if (after != taken.begin()) {
        const auto before = std::prev(after);
        REQUIRE(before->first + before->second <= at);
      }
      taken[at] = std::max<std::size_t>(size, 1);
      if (taken.size() < 150) continue;
    }
    heap.give_back(taken.begin()->first, taken.begin()->second);
    taken.erase(taken.begin());
  }
}

TEST_CASE("block_heap: what was given back last comes first") {
  BlockHeap heap(1 << 20);
  const auto one = heap.take(1000), two = heap.take(1000);
  heap.give_back(two, 1000);
  heap.give_back(one, 1000);
  CHECK(heap.take(900) == one);
  CHECK(heap.take(1024) == two);
  CHECK(heap.take(1025) != one);
}

TEST_CASE("block_heap: no room") {
  BlockHeap heap(1000);
  static_cast<void>(heap.take(512));
  CHECK(tests::message_of([&] {
          return heap.take(512);
        }).find("no room for 512 more bytes in 1000") != std::string::npos);
  CHECK(tests::message_of([&] { return heap.take(~std::size_t{0}); }).find("no room for") !=
        std::string::npos);
}

}  // namespace
