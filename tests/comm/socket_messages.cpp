// SocketMessages: two ends in one process, without a world around them.
#include <dhp/comm/socket_messages.hpp>
#include <tests/comm/suite/message_suite.hpp>

#include <doctest/doctest.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <vector>

namespace {

using namespace dhp;
using namespace tests;
using Message = SocketMessages::Message;
using Shared = SocketMessages::Shared;

/// The ends of a connection. Not of TCP, which has no other way to be told how little it may hold.
struct Wire {
  explicit Wire(int buffer_bytes = 0) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    for (int end : {0, 1}) {
      sockets[end] = Socket(ends[end]);
      if (buffer_bytes > 0) sockets[end].set(SOL_SOCKET, SO_SNDBUF, buffer_bytes);
    }
  }
  Socket sockets[2];
};

struct Two : TwoRanks<SocketMessages> {
  explicit Two(SocketMessages::Options options = {}, int buffer_bytes = 0) {
    Wire wire(buffer_bytes);
    for (int rank : {0, 1}) {
      std::map<int, Socket> links;
      links.emplace(1 - rank, std::move(wire.sockets[rank]));
      ends[rank].emplace(std::move(links), options);
    }
  }
};

/// One end, and the bare other one.
struct Half {
  Half() {
    Wire wire;
    std::map<int, Socket> links;
    links.emplace(1, std::move(wire.sockets[0]));
    end.emplace(std::move(links), SocketMessages::Options());
    other = std::move(wire.sockets[1]);
  }
  void say(const void* bytes, std::size_t count) {
    REQUIRE(other.send({static_cast<const char*>(bytes), count}, Deadline(5)));
  }
  void say(const SocketHead& head) { say(&head, sizeof head); }
  std::optional<SocketMessages> end;
  Socket other;
};

Shared message(std::vector<std::byte>& bytes, int peer, std::uint64_t tag) {
  return tests::message<SocketMessages>(bytes, peer, tag);
}

TEST_CASE("socket_messages: of any length, received before or after they are sent") {
  for (const int buffer_bytes : {0, 4096}) {
    Two two({.short_bytes = 1000}, buffer_bytes);
    check_lengths(two, {0, 1, 23, 24, 999, 1000, 1001, 65536, 300'000});
  }
}

TEST_CASE("socket_messages: those of one tag meet in order, those of others do not wait for them") {
  Two two({.short_bytes = 1003}, 4096);
  check_order_of_tags(two);
}

TEST_CASE("socket_messages: a short one does not overtake a long one of its tag") {
  const std::size_t lengths[] = {10, 5000, 0, 20, 7000, 8000, 30, 9000};
  for (const int first : {0, 1, 2}) {  // who begins; or both, by turns
    Two two({.short_bytes = 1000}, 4096);
    std::vector<std::vector<std::byte>> out, in;
    std::vector<Shared> sent, received;
    for (const auto bytes : lengths) {
      out.emplace_back(bytes, static_cast<std::byte>(bytes / 10));
      in.emplace_back(bytes);
      sent.push_back(message(out.back(), 1, 1));
      received.push_back(message(in.back(), 0, 1));
    }
    const auto begin = [&](int which, std::size_t k) {
      if (which == 0) two.ends[0]->send(sent[k]);
      else two.ends[1]->receive(received[k]);
    };
    for (std::size_t k = 0; k < sent.size(); ++k) {
      begin(first % 2, k);
      if (first == 2) begin(1, k);
    }
    for (std::size_t k = 0; k < sent.size() && first < 2; ++k) begin(1 - first, k);
    std::thread sender([&] {
      for (const auto& one : sent) CHECK(end_of(*two.ends[0], one) == "done");
    });
    for (std::size_t k = 0; k < sent.size(); ++k) {
      CHECK(end_of(*two.ends[1], received[k]) == "done");
      CHECK(in[k] == out[k]);
    }
    sender.join();
  }
}

TEST_CASE("socket_messages: what is sent is done when somebody takes it, not before") {
  Two two({.short_bytes = 1000});
  for (const std::size_t bytes : {10, 5000}) {
    auto out = numbered(bytes), in = std::vector<std::byte>(bytes);
    const auto sent = message(out, 1, 1), received = message(in, 0, 1);
    two.ends[0]->send(sent);
    std::atomic<bool> done = false;
    std::thread sender([&] {
      CHECK(two.ends[0]->wait(*sent));
      done = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    CHECK_FALSE(done);
    two.ends[1]->receive(received);
    CHECK(two.ends[1]->wait(*received));
    sender.join();
  }
}

TEST_CASE("socket_messages: a long one that is sent ahead needs no call of its sender to go on") {
  Two two({.short_bytes = 1000}, 4096);
  auto out = numbered(500'000), in = std::vector<std::byte>(out.size());
  auto small = numbered(2000), taken = std::vector<std::byte>(small.size());
  for (int already = 0; already < 3; ++already) {  // which go at once
    const auto received = message(taken, 0, 1);
    two.ends[1]->receive(received);
    two.ends[0]->send_ahead(message(small, 1, 1));
    CHECK(two.ends[1]->wait(*received));
  }
  const auto sent = message(out, 1, 1), received = message(in, 0, 1);
  two.ends[0]->send_ahead(sent);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the helper has found nothing to do
  two.ends[1]->receive(received);
  CHECK(two.ends[1]->wait(*received));  // in vain, for ever, without a helper
  CHECK(in == out);
  CHECK(two.ends[0]->wait(*sent));
}

TEST_CASE("socket_messages: those of ranks that may wait elsewhere need no call of either side") {
  Two two({.short_bytes = 1000, .helped = true}, 4096);
  check_helpers(two, {500'000, 10});
}

TEST_CASE("socket_messages: what does not go at once goes on although nobody waits") {
  Two two({.short_bytes = 1000}, 4096);
  auto long_out = numbered(500'000), long_in = std::vector<std::byte>(long_out.size());
  auto out = numbered(50), in = std::vector<std::byte>(out.size());
  const auto sent_long = message(long_out, 1, 1), received_long = message(long_in, 0, 1);
  const auto sent = message(out, 0, 2), received = message(in, 1, 2);
  two.ends[1]->receive(received_long);
  two.ends[0]->send(sent_long);
  two.ends[0]->receive(received);
  std::thread other([&] { CHECK(two.ends[1]->wait(*sent)); });
  two.ends[1]->send(sent);
  CHECK(two.ends[0]->wait(*received));  // and says so, after the long one
  other.join();                         // in vain, for ever, without a helper
  CHECK(two.ends[1]->wait(*received_long));
  CHECK((in == out && long_in == long_out));
  CHECK(two.ends[0]->wait(*sent_long));
}

TEST_CASE("socket_messages: who ends says first what it has to say") {
  Two two({.short_bytes = 1000}, 4096);
  auto long_out = numbered(300'000), long_in = std::vector<std::byte>(long_out.size());
  const auto sent = message(long_out, 1, 1), received = message(long_in, 0, 1);
  two.ends[1]->receive(received);
  two.ends[0]->send(sent);
  std::thread other([&] { CHECK(end_of(*two.ends[1], received) == "done"); });
  two.ends[0].reset();
  other.join();
  CHECK(long_in == long_out);
}

TEST_CASE("socket_messages: who waits takes over from the helper, and gives back") {
  Two two({.short_bytes = 100}, 4096);
  for (int round = 0; round < 100; ++round) {
    auto ahead = numbered(20'000), taken = std::vector<std::byte>(ahead.size());
    auto out = numbered(50), in = std::vector<std::byte>(out.size());
    const auto sent_ahead = message(ahead, 1, 1), received_late = message(taken, 0, 1);
    const auto sent = message(out, 0, 2), received = message(in, 1, 2);
    two.ends[0]->send_ahead(sent_ahead);
    if (round % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(400));
    std::thread other([&] {
      two.ends[1]->send(sent);
      two.ends[1]->receive(received_late);
      CHECK(two.ends[1]->wait(*received_late));
      CHECK(two.ends[1]->wait(*sent));
    });
    two.ends[0]->receive(received);
    CHECK(two.ends[0]->wait(*received));  // and then computes, while the long one goes
    other.join();
    CHECK(two.ends[0]->wait(*sent_ahead));
    CHECK((in == out && taken == ahead));
  }
}

TEST_CASE("socket_messages: threads of a rank, each with its own") {
  Two two({.short_bytes = 600}, 4096);  // long ones and short ones
  check_threads(two, 300,
                {{1, 300}, {2, 600}, {.tag = 3, .bytes = 900, .ahead = true}, {30, 9000}});
}

TEST_CASE(
    "socket_messages: one of another length is refused, and nothing is written past the end") {
  Two two({.short_bytes = 500});
  for (const std::size_t bytes : {99, 101, 400, 2000}) {
    for (const bool early : {false, true}) {
      auto out = numbered(bytes);
      std::vector<std::byte> in(200);
      const auto sent = message(out, 1, bytes);
      const auto received = std::make_shared<Message>(
          Message{.data = in.data(), .bytes = 100, .peer = 0, .tag = bytes});
      if (early) two.ends[1]->receive(received);
      two.ends[0]->send(sent);
      if (!early) two.ends[1]->receive(received);
      if (bytes > 500) {  // it waits to be asked for, and a short one is not asked for
        two.ends[0]->withdraw(sent);
        two.ends[1]->withdraw(received);
        continue;
      }
      CHECK(end_of(*two.ends[1], received) == "0: it sends other than the 100 bytes expected");
      CHECK(in == std::vector<std::byte>(200));
      two.ends[1]->withdraw(received);
      two.ends[0]->withdraw(sent);
    }
  }
  auto out = numbered(50), in = std::vector<std::byte>(50);  // others go on
  const auto sent = message(out, 1, 7), received = message(in, 0, 7);
  two.ends[0]->send(sent);
  two.ends[1]->receive(received);
  CHECK(two.ends[1]->wait(*received));
  CHECK(in == out);
}

TEST_CASE("socket_messages: the end reaches all that wait, and what comes after it") {
  Two two;
  check_end(two);
}

TEST_CASE("socket_messages: who has gone is named to all that wait for it") {
  Two two;
  std::vector<std::byte> in(10);
  std::vector<std::thread> threads;
  std::atomic<int> told = 0;
  for (std::uint64_t tag = 0; tag < 3; ++tag)
    threads.emplace_back([&, tag] {
      const auto received = message(in, 0, tag);
      two.ends[1]->receive(received);
      told += end_of(*two.ends[1], received) == "0: it has closed the connection";
    });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  two.ends[0].reset();
  for (auto& thread : threads) thread.join();
  CHECK(told == 3);
  const auto late = message(in, 0, 9);
  two.ends[1]->receive(late);
  CHECK(end_of(*two.ends[1], late) == "0: it has closed the connection");
}

TEST_CASE("socket_messages: what was sent before its sender has gone still arrives") {
  Two two;
  check_sender_gone(two, "it has closed the connection");
}

TEST_CASE("socket_messages: what makes no sense ends the connection") {
  for (const auto& head : {SocketHead{.kind = SocketHead::Kind(7)},
                           SocketHead{.bytes = 5, .kind = SocketHead::taken}}) {
    Half half;
    half.say(head);
    std::vector<std::byte> in;
    const auto received = message(in, 1, head.tag);
    half.end->receive(received);
    CHECK(end_of(*half.end, received) == "1: what it sends makes no sense");
  }
}

TEST_CASE(
    "socket_messages: one that is withdrawn half way is read to its end, and written nowhere") {
  Half half;
  std::vector<std::byte> in(200'000), next(10);
  const auto received = message(in, 1, 1), after = message(next, 1, 2);
  half.end->receive(received);
  half.end->receive(after);
  const auto bytes = numbered(in.size());
  half.say({.tag = 1, .bytes = in.size()});
  half.say(bytes.data(), 50'000);
  std::thread waits([&] { static_cast<void>(end_of(*half.end, after)); });
  REQUIRE(soon([&] {  // all that has been said is read
    int unread = 1;
    return ::ioctl(half.other.fd(), SIOCOUTQ, &unread) == 0 && unread == 0;
  }));
  half.end->withdraw(received);
  half.say(bytes.data() + 50'000, in.size() - 50'000);
  half.say({.tag = 2, .bytes = 10});
  half.say(bytes.data(), 10);
  waits.join();
  CHECK(after->done());
  CHECK(std::equal(next.begin(), next.end(), bytes.begin()));
  CHECK(std::count(in.begin() + 50'000, in.end(), std::byte{}) == 150'000);
}

TEST_CASE(
    "socket_messages: what nobody wants any more leaves nothing for the next one of its tag") {
  Half half;
  std::vector<std::byte> in(20'000), next(10);
  const auto bytes = numbered(in.size());
  for (const bool half_way : {false, true}) {
    const auto gone = message(in, 1, 1), last = message(next, 1, 1);
    half.end->receive(gone);
    half.say({.tag = 1, .bytes = in.size()});
    half.say(bytes.data(), 100);
    if (!half_way) half.end->withdraw(gone);
    auto long_one = numbered(20'000);
    const auto looks = message(long_one, 1, 9);
    half.end->send(looks);  // it looks at what has come
    half.end->withdraw(looks);
    if (half_way) half.end->withdraw(gone);
    half.say(bytes.data() + 100, in.size() - 100);
    half.say({.tag = 1, .bytes = 10});
    half.say(bytes.data(), 10);
    half.end->receive(last);
    CHECK(end_of(*half.end, last) == "done");
  }
}

TEST_CASE("socket_messages: short ones do not wait for a long one of their tag that is withdrawn") {
  const std::size_t lengths[] = {5000, 10, 6000, 20, 0};
  for (const auto& gone : {std::set<int>{0}, {2}, {0, 2}}) {
    for (const bool others_wait : {false, true}) {
      Two two({.short_bytes = 1000});
      std::vector<std::vector<std::byte>> out, in;
      std::vector<Shared> all, sent, received;
      for (const auto bytes : lengths) {
        const bool goes = !gone.contains(static_cast<int>(out.size()));
        out.emplace_back(bytes, static_cast<std::byte>(1 + bytes / 10));
        in.emplace_back(goes ? bytes : 0);
        all.push_back(message(out.back(), 1, 1));
        two.ends[0]->send(all.back());
        if (goes) sent.push_back(all.back());
        if (goes) received.push_back(message(in.back(), 0, 1));
      }
      std::atomic<bool> done = false;
      const auto wait_for_all = [&](int rank, const std::vector<Shared>& ones) {
        for (const auto& one : ones) {
          if (rank == 1) two.ends[1]->receive(one);
          CHECK(end_of(*two.ends[rank], one) == "done");
        }
        if (rank == 1) done = true;
      };
      const auto withdraw = [&] {
        for (const int which : gone) two.ends[0]->withdraw(all[static_cast<std::size_t>(which)]);
      };
      if (!others_wait) withdraw();
      std::thread sender(wait_for_all, 0, sent);
      if (others_wait) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        withdraw();
      }
      std::thread receiver(wait_for_all, 1, received);
      if (!soon([&] { return done.load(); }))
        for (auto& each : two.ends) each->end();  // they would wait for ever
      sender.join();
      receiver.join();
      for (std::size_t k = 0; k < out.size(); ++k) CHECK((in[k].empty() || in[k] == out[k]));
    }
  }
}

TEST_CASE("socket_messages: who waits writes what another thread has begun") {
  Two two({.short_bytes = 1000}, 4096);
  auto out = numbered(500'000), in = std::vector<std::byte>(out.size());
  std::vector<std::byte> end(10), got(10);
  const auto sent = message(out, 1, 1), received = message(in, 0, 1), last = message(got, 1, 2);
  two.ends[0]->receive(last);
  std::thread waits([&] { CHECK(two.ends[0]->wait(*last)); });
  two.ends[1]->receive(received);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it knows that it may be sent
  two.ends[0]->send(sent);
  CHECK(two.ends[1]->wait(*received));  // in vain, for ever, where it sleeps on
  CHECK(in == out);
  CHECK(two.ends[0]->wait(*sent));
  const auto says = message(end, 0, 2);
  two.ends[1]->send(says);
  CHECK(two.ends[1]->wait(*says));
  waits.join();
}

TEST_CASE("socket_messages: one that is broken off ends the connection, since its bytes are gone") {
  Half half;
  auto out = numbered(10'000'000);
  const auto sent = message(out, 1, 1);
  half.say({.tag = 1, .kind = SocketHead::taken});
  half.end->send(sent);
  REQUIRE_FALSE(sent->moved);
  half.end->withdraw(sent);
  auto more = numbered(10);
  const auto next = message(more, 1, 2);
  half.end->send(next);
  CHECK(end_of(*half.end, next) == "1: a message over it was broken off");
}

TEST_CASE("socket_messages: who waits is told that another message has broken the connection off") {
  Half half;
  auto out = numbered(10'000'000);
  std::vector<std::byte> in(10);
  const auto sent = message(out, 1, 1), received = message(in, 1, 2);
  half.say({.tag = 1, .kind = SocketHead::taken});
  half.end->send(sent);
  half.end->receive(received);
  std::string told;
  std::thread waits([&] { told = end_of(*half.end, received); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  half.end->withdraw(sent);
  waits.join();
  CHECK(told == "1: a message over it was broken off");
}

}  // namespace
