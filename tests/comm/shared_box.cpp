// SharedBox: notes in a lane, and what lies in the heap.
#include <dhp/comm/shared_box.hpp>
#include <tests/support/tensors.hpp>

#include <doctest/doctest.h>

namespace {

using namespace dhp;

TEST_CASE("shared_box: notes arrive in order, until the lane is full") {
  SharedBox own(3, 1 << 16);
  const SharedBox seen(3, own.address());
  std::uint64_t put = 0, taken = 0;
  for (int round = 0; round < 3; ++round) {
    while (own.lane(2).put({.tag = put})) ++put;
    CHECK(put - taken == SharedLane::notes);
    SharedNote note;
    bool was_full = false;
    for (int some = 0; some < 100; ++some) {
      REQUIRE(seen.lane(2).take(note, was_full));
      REQUIRE(note.tag == taken++);
    }
    CHECK(was_full);
  }
  SharedNote note;
  bool was_full = false;
  CHECK_FALSE(seen.lane(1).take(note, was_full));
  CHECK_FALSE(was_full);
}

TEST_CASE("shared_box: a block is seen by both, and lies inside") {
  SharedBox own(2, 1 << 16);
  const SharedBox seen(2, own.address());
  CHECK(seen.heap_bytes() == own.heap_bytes());
  auto* const block = own.make_block(128);
  block->bytes()[5] = std::byte{9};
  CHECK(seen.block(128).bytes()[5] == std::byte{9});
  seen.block(128).read.store(1);
  CHECK(block->read == 1);
  CHECK(seen.holds({.offset = 128, .bytes = 100}));
  CHECK(seen.holds({.offset = 0, .bytes = (1 << 16) - sizeof(SharedBlock)}));
  CHECK_FALSE(seen.holds({.offset = 0, .bytes = (1 << 16) - sizeof(SharedBlock) + 1}));
  CHECK_FALSE(seen.holds({.offset = 1 << 16, .bytes = 0}));
  CHECK_FALSE(seen.holds({.offset = ~std::uint64_t{63}, .bytes = 1 << 20}));
  CHECK_FALSE(seen.holds({.offset = 64, .bytes = ~std::uint64_t{0}}));
  CHECK_FALSE(seen.holds({.offset = 3, .bytes = 1}));
}

TEST_CASE("shared_box: one of fewer ranks is refused") {
  const SharedBox own(1, 1);
  CHECK(tests::message_of([&] {
          return SharedBox(100, own.address());
        }).find("too small for 100 ranks") != std::string::npos);
}

}  // namespace
