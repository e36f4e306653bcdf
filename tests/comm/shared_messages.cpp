// SharedMessages: two ends in one process, without a world around them.
#include <dhp/comm/shared_messages.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <thread>
#include <vector>

namespace {

using namespace dhp;
using Message = SharedMessages::Message;
using Shared = SharedMessages::Shared;

struct Two {
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
  std::optional<SharedMessages> ends[2];
};

std::vector<std::byte> numbered(std::size_t bytes) {
  std::vector<std::byte> made(bytes);
  for (std::size_t at = 0; at < bytes; ++at) made[at] = static_cast<std::byte>(at * 7 % 251);
  return made;
}
Shared message(std::vector<std::byte>& bytes, int peer, std::uint64_t tag) {
  return std::make_shared<Message>(
      Message{.data = bytes.data(), .bytes = bytes.size(), .peer = peer, .tag = tag});
}

TEST_CASE("shared_messages: of any length, received before or after they are sent") {
  Two two({.piece_bytes = 1000, .window_bytes = 3000});
  for (const std::size_t bytes : {0, 1, 999, 1000, 1001, 50'000}) {
    for (const bool early : {false, true}) {
      auto out = numbered(bytes), in = std::vector<std::byte>(bytes);
      const auto sent = message(out, 1, bytes), received = message(in, 0, bytes);
      if (early) two.ends[1]->receive(received);
      two.ends[0]->send(sent);
      if (!early) two.ends[1]->receive(received);
      std::thread other([&] { CHECK(two.ends[1]->wait(*received)); });
      CHECK(two.ends[0]->wait(*sent));
      other.join();
      CHECK(in == out);
    }
  }
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
  for (const int waits : {0, 1}) {
    auto out = numbered(20'000), in = std::vector<std::byte>(out.size());
    const Shared ends[] = {message(out, 1, 1), message(in, 0, 1)};
    two.ends[0]->send(ends[0]);
    two.ends[1]->receive(ends[1]);
    CHECK(two.ends[waits]->wait(*ends[waits]));  // in vain, for ever, without the other's helper
    CHECK(two.ends[1 - waits]->wait(*ends[1 - waits]));
    CHECK(in == out);
  }
}

TEST_CASE("shared_messages: those of one tag meet in order, those of others do not wait for them") {
  Two two({.piece_bytes = 100, .window_bytes = 100});
  std::vector<std::vector<std::byte>> out, in;
  std::vector<Shared> sent, received;
  for (std::size_t k = 0; k < 8; ++k) {
    out.push_back(std::vector<std::byte>(1000 + k, static_cast<std::byte>(k)));
    in.emplace_back(out.back().size());
  }
  for (std::size_t k = 0; k < 8; ++k) {
    sent.push_back(message(out[k], 1, k % 2));
    two.ends[0]->send(sent.back());
  }
  for (std::size_t k = 0; k < 8; ++k) received.push_back(message(in[k], 0, k % 2));
  std::thread sender([&] {
    for (const auto& one : sent) CHECK(two.ends[0]->wait(*one));
  });
  for (const std::size_t k : {1, 3, 5, 7, 0, 2, 4, 6}) {
    two.ends[1]->receive(received[k]);
    CHECK(two.ends[1]->wait(*received[k]));
    CHECK(in[k] == out[k]);
  }
  sender.join();
}

TEST_CASE("shared_messages: two threads of a rank, each with its own") {
  Two two({.piece_bytes = 64, .window_bytes = 200});
  const auto run = [&](int rank, std::uint64_t tag) {
    for (int round = 0; round < 200; ++round) {
      auto out = numbered(500), in = std::vector<std::byte>(500);
      const auto sent = message(out, 1 - rank, tag), received = message(in, 1 - rank, tag);
      two.ends[rank]->receive(received);
      two.ends[rank]->send(sent);
      REQUIRE(two.ends[rank]->wait(*received));
      REQUIRE(two.ends[rank]->wait(*sent));
      REQUIRE(in == out);
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    for (const std::uint64_t tag : {1, 2}) threads.emplace_back(run, rank, tag);
  for (auto& thread : threads) thread.join();
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
  auto in = std::vector<std::byte>(10);
  const auto received = message(in, 0, 1);
  two.ends[1]->receive(received);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    two.ends[1]->end();
  });
  CHECK_FALSE(two.ends[1]->wait(*received));
  other.join();
  CHECK_FALSE(two.ends[1]->wait(*received));
  two.ends[1]->withdraw(received);
}

TEST_CASE("shared_messages: a peer that is gone is lost, but what it has sent arrives") {
  Two two;
  auto out = numbered(1000), in = std::vector<std::byte>(1000);
  two.ends[0]->send_ahead(message(out, 1, 1));
  two.ends[0].reset();
  const auto received = message(in, 0, 1), never = message(in, 0, 2);
  two.ends[1]->receive(received);
  CHECK(two.ends[1]->wait(*received));
  CHECK(in == out);
  two.ends[1]->receive(never);
  CHECK_THROWS_WITH_AS(static_cast<void>(two.ends[1]->wait(*never)), "its process has ended",
                       PeerLost);
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
