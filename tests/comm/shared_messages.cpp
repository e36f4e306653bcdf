// SharedMessages: two ends in one process, without a world around them.
#include <dhp/comm/shared_messages.hpp>
#include <tests/comm/suite/message_suite.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace dhp;
using namespace tests;
using Shared = SharedMessages::Shared;

struct Two : TwoRanks<SharedMessages> {
  explicit Two(SharedMessages::Options options = {}) {
    constexpr std::size_t heap_bytes = 1 << 24;
    SharedBox boxes[2] = {{2, heap_bytes}, {2, heap_bytes}};
    const std::string addresses[2] = {boxes[0].address(), boxes[1].address()};
    for (int rank = 0; rank < 2; ++rank) {
      std::map<int, SharedBox> others;
      others.emplace(1 - rank, SharedBox(2, addresses[1 - rank]));
      ends[rank].emplace(rank, std::move(boxes[rank]), std::move(others), options);
    }
  }
};

Shared message(std::vector<std::byte>& bytes, int peer, std::uint64_t tag) {
  return tests::message<SharedMessages>(bytes, peer, tag);
}

TEST_CASE("shared_messages: of any length, received before or after they are sent") {
  Two two({.piece_bytes = 1000, .window_bytes = 3000});
  check_lengths(two, {0, 1, 999, 1000, 1001, 50'000});
}

TEST_CASE("shared_messages: one that is sent ahead may change at once, and needs nobody to go on") {
  Two two({.piece_bytes = 1000, .window_bytes = 1});
  auto out = numbered(20'000), in = std::vector<std::byte>(out.size());
  const auto expected = out;
  const auto sent = message(out, 1, 1);
  two.ends[0]->send_ahead(sent);
  std::fill(out.begin(), out.end(), std::byte{0});
  CHECK_FALSE(sent->done());
  const auto received = message(in, 0, 1);
  two.ends[1]->receive(received);
  CHECK(two.ends[1]->wait(*received));
  CHECK(in == expected);
  CHECK(two.ends[0]->wait(*sent));
}

TEST_CASE("shared_messages: those of ranks that may wait elsewhere need no call of either side") {
  Two two({.piece_bytes = 1000, .window_bytes = 1, .helped = true});
  check_helpers(two, {20'000});
}

TEST_CASE("shared_messages: those of one tag meet in order, those of others do not wait for them") {
  Two two({.piece_bytes = 100, .window_bytes = 100});
  check_order_of_tags(two);
}

TEST_CASE("shared_messages: two threads of a rank, each with its own") {
  Two two({.piece_bytes = 64, .window_bytes = 200});
  check_threads(two, 200, {{1, 500}, {2, 500}});
}

TEST_CASE(
    "shared_messages: one of another length is refused, and nothing is written past the end") {
  for (const std::size_t bytes : {999, 1001}) {
    Two two;
    auto out = numbered(1000), in = std::vector<std::byte>(bytes);
    const auto sent = message(out, 1, 1), received = message(in, 0, 1);
    two.ends[0]->send(sent);
    two.ends[1]->receive(received);
    CHECK_THROWS_WITH_AS(static_cast<void>(two.ends[1]->wait(*received)),
                         concat("it sends other than the ", bytes, " bytes expected").c_str(),
                         PeerLost);
  }
}

TEST_CASE("shared_messages: an end by another thread ends a wait, and every later one") {
  Two two;
  check_end(two);
}

TEST_CASE("shared_messages: a peer that is gone is lost, but what it has sent arrives") {
  Two two;
  check_sender_gone(two, "its process has ended");
}

TEST_CASE("shared_messages: memory of messages that are done is used again") {
  Two two;  // of 16 MiB
  auto out = numbered(1 << 20), in = std::vector<std::byte>(out.size());
  for (int round = 0; round < 100; ++round) {
    const auto sent = message(out, 1, 1), received = message(in, 0, 1);
    two.ends[1]->receive(received);
    two.ends[0]->send_ahead(sent);
    REQUIRE(two.ends[1]->wait(*received));
    REQUIRE(two.ends[0]->wait(*sent));
  }
}

}  // namespace
