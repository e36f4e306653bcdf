// What messages between two ranks have to do, whatever carries them: typed over their kind, and called by the cases of
// those kinds, which choose lengths and say what is theirs alone.
#pragma once

#include <dhp/comm/peer_transport.hpp>
#include <dhp/core/text.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace tests {

/// In one process, without a world around them.
template <class Messages>
struct TwoRanks {
  std::optional<Messages> ends[2];
};

inline std::vector<std::byte> numbered(std::size_t bytes) {
  std::vector<std::byte> made(bytes);
  for (std::size_t at = 0; at < bytes; ++at) made[at] = static_cast<std::byte>(at * 7 % 251);
  return made;
}
template <class Messages>
typename Messages::Shared message(std::vector<std::byte>& bytes, int peer, std::uint64_t tag) {
  return std::make_shared<typename Messages::Message>(typename Messages::Message{
      .data = bytes.data(), .bytes = bytes.size(), .peer = peer, .tag = tag});
}
/// "done", "ended", or who is lost and why.
template <class Messages>
std::string end_of(Messages& end, const typename Messages::Shared& one) {
  try {
    return end.wait(*one) ? "done" : "ended";
  } catch (const dhp::PeerLost& lost) {
    return dhp::concat(lost.rank(), ": ", lost.what());
  }
}
template <class Condition>
bool soon(Condition condition) {
  for (int look = 0; look < 5000; ++look) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

/// Of these lengths, received before or after they are sent.
template <class Messages>
void check_lengths(TwoRanks<Messages>& two, std::initializer_list<std::size_t> lengths) {
  for (const auto bytes : lengths) {
    for (const bool early : {false, true}) {
      auto out = numbered(bytes), in = std::vector<std::byte>(bytes);
      const auto sent = message<Messages>(out, 1, bytes),
                 received = message<Messages>(in, 0, bytes);
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

/// Those of one tag meet in order, whichever side begins, and those of others do not wait for them: messages of 1000 to 1007
/// bytes.
template <class Messages>
void check_order_of_tags(TwoRanks<Messages>& two) {
  for (const bool early : {false, true}) {
    std::vector<std::vector<std::byte>> out, in;
    std::vector<typename Messages::Shared> sent, received;
    for (std::size_t k = 0; k < 8; ++k) {
      out.push_back(std::vector<std::byte>(1000 + k, static_cast<std::byte>(k)));
      in.emplace_back(out.back().size());
    }
    for (std::size_t k = 0; k < 8; ++k) {
      sent.push_back(message<Messages>(out[k], 1, k % 2));
      received.push_back(message<Messages>(in[k], 0, k % 2));
    }
    for (std::size_t k = 0; k < 8 && early; ++k) two.ends[1]->receive(received[k]);
    for (const auto& one : sent) two.ends[0]->send(one);
    std::thread sender([&] {
      for (const auto& one : sent) CHECK(end_of(*two.ends[0], one) == "done");
    });
    for (const std::size_t k : {1, 3, 5, 7, 0, 2, 4, 6}) {
      if (!early) two.ends[1]->receive(received[k]);
      const auto end = end_of(*two.ends[1], received[k]);
      CHECK(end == "done");
      CHECK(in[k] == out[k]);
      if (end == "done") continue;
      for (auto& each : two.ends) each->end();  // others would wait for ever
    }
    sender.join();
  }
}

/// Ends with helpers: whichever side waits, the other one needs no call. Of these lengths, one after the other.
template <class Messages>
void check_helpers(TwoRanks<Messages>& two, std::initializer_list<std::size_t> lengths) {
  for (const int waits : {0, 1}) {
    for (const auto bytes : lengths) {
      auto out = numbered(bytes), in = std::vector<std::byte>(bytes);
      const typename Messages::Shared both[] = {message<Messages>(out, 1, 1),
                                                message<Messages>(in, 0, 1)};
      two.ends[0]->send(both[0]);
      two.ends[1]->receive(both[1]);
      CHECK(two.ends[waits]->wait(*both[waits]));  // in vain, for ever, without the other's helper
      CHECK(two.ends[1 - waits]->wait(*both[1 - waits]));
      CHECK(in == out);
    }
  }
}

/// What one thread of each rank sends and receives, again and again.
struct ThreadOfRank {
  std::uint64_t tag;
  std::size_t bytes;
  bool ahead = false;
};
template <class Messages>
void check_threads(TwoRanks<Messages>& two, int rounds,
                   std::initializer_list<ThreadOfRank> threads_of_rank) {
  const auto run = [&](int rank, ThreadOfRank mine) {
    for (int round = 0; round < rounds; ++round) {
      auto out = numbered(mine.bytes), in = std::vector<std::byte>(mine.bytes);
      const auto sent = message<Messages>(out, 1 - rank, mine.tag);
      const auto received = message<Messages>(in, 1 - rank, mine.tag);
      two.ends[rank]->receive(received);
      if (mine.ahead) two.ends[rank]->send_ahead(sent);
      else two.ends[rank]->send(sent);
      REQUIRE(two.ends[rank]->wait(*received));
      REQUIRE(two.ends[rank]->wait(*sent));
      REQUIRE(in == out);
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    for (const auto& mine : threads_of_rank) threads.emplace_back(run, rank, mine);
  for (auto& thread : threads) thread.join();
}

/// An end by another thread ends all waits, and every later one.
template <class Messages>
void check_end(TwoRanks<Messages>& two) {
  std::vector<std::byte> in(10), long_one(100'000);
  std::vector<std::thread> threads;
  std::atomic<int> ended = 0;
  for (std::uint64_t tag = 0; tag < 3; ++tag)
    threads.emplace_back([&, tag] {
      const auto received = message<Messages>(in, 0, tag);
      two.ends[1]->receive(received);
      for (int times = 0; times < 2; ++times) ended += end_of(*two.ends[1], received) == "ended";
      two.ends[1]->withdraw(received);
    });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  two.ends[1]->end();
  for (auto& thread : threads) thread.join();
  CHECK(ended == 6);
  const auto late = message<Messages>(long_one, 0, 9);
  two.ends[1]->send(late);
  CHECK(end_of(*two.ends[1], late) == "ended");
  two.ends[1]->withdraw(late);
}

/// What was sent before its sender has gone still arrives, and nothing after it; why: it is lost.
template <class Messages>
void check_sender_gone(TwoRanks<Messages>& two, const std::string& why) {
  auto out = numbered(5000), in = std::vector<std::byte>(out.size());
  for (const int tag : {1, 2}) two.ends[0]->send(message<Messages>(out, 1, tag));
  two.ends[0].reset();
  for (const int tag : {1, 2}) {  // the second one although it cannot be told of the first one
    const auto received = message<Messages>(in, 0, tag);
    two.ends[1]->receive(received);
    CHECK(end_of(*two.ends[1], received) == "done");
    CHECK(in == out);
    in.assign(in.size(), {});
  }
  const auto never = message<Messages>(in, 0, 3);
  two.ends[1]->receive(never);
  CHECK(end_of(*two.ends[1], never) == dhp::concat("0: ", why));
}

}  // namespace tests
