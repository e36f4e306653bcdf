#include <dhp/comm/threads/thread_comm.hpp>
#include <tests/comm/collectives.hpp>

#include <doctest/doctest.h>

namespace {

using namespace tests;

template <class Check>
void on_worlds_of(std::initializer_list<int> sizes, Check check_one) {
  for (const int n : sizes)
    for (const auto& wrong : on_ranks(n, check_one)) CHECK(wrong == "");
}

TEST_CASE("threads: all_reduce") { on_worlds_of({1, 2, 3, 4, 8}, wrong_all_reduce); }

TEST_CASE("threads: small all_reduces back to back, with ranks a step apart") {
  on_worlds_of(
      {4}, [](Comm<Cpu>& world, Cpu& dev) { return wrong_small_all_reduces(world, dev, 2000); });
}

TEST_CASE("threads: reduce_scatter, all_gather and all_to_all") {
  on_worlds_of({1, 2, 3, 4, 8}, wrong_blocks);
}

TEST_CASE("threads: broadcast from every root") { on_worlds_of({2, 3, 8}, wrong_broadcast); }

TEST_CASE("threads: a sum has the bits of the order of the ranks, whoever comes last") {
  on_worlds_of({5}, wrong_bits);
}

TEST_CASE("threads: laws of scatter, gather and exchange, in place too") {
  on_worlds_of({4}, wrong_laws);
}

TEST_CASE("threads: messages arrive whole, in order, and from whom they should") {
  on_worlds_of({2, 3, 4, 8}, wrong_messages);
}

TEST_CASE("threads: a send waits when the edge is full, and not before") {
  std::atomic<int> sent = 0;
  const auto results = on_ranks(2, [&](Comm<Cpu>& world, Cpu& dev) {
    const int capacity = world.send_capacity();
    int early = 0;
    auto x = tensor_of<std::int32_t>(dev, {0});
    if (world.rank() == 0) {
      for (int message = 0; message <= capacity; ++message) {
        world.send(dev, tensor_of<std::int32_t>(dev, {message}), 1);
        ++sent;
      }
    } else {
      while (sent < capacity) sleep_ms(1);
      sleep_ms(30);
      early = sent - capacity;
      for (int message = 0; message <= capacity; ++message) {
        world.recv(dev, x.mut(), 0);
        early += x.view().data<std::int32_t>()[0] != message;
      }
    }
    return early;
  });
  CHECK(results[1] == 0);
  CHECK(sent == dhp::comm::ThreadGroup::capacity + 1);
}

TEST_CASE("threads: what is sent cannot be written to before it has been received") {
  std::atomic<bool> received = false;
  const auto results = on_ranks(2, [&](Comm<Cpu>& world, Cpu& dev) {
    auto x = tensor_of<float>(dev, {1, 2});
    if (world.rank() == 1) {
      while (!received) sleep_ms(1);
      world.recv(dev, x.mut(), 0);
      world.barrier();
      return std::string();
    }
    world.send(dev, x.share(), 1);
    const auto early = message_of([&] { (void)x.mut(); });
    received = true;
    world.barrier();
    return concat(early, x.unique() ? "; then it is free" : "");
  });
  CHECK(contains(results[0], "a shared tensor of shape [2] is read-only"));
  CHECK(contains(results[0], "; then it is free"));
}

TEST_CASE("threads: a message of another kind is refused, and is still there") {
  const auto messages = on_ranks(2, [](Comm<Cpu>& world, Cpu& dev) {
    auto x = tensor_of<float>(dev, {1, 2, 3});
    if (world.rank() == 0) {
      world.send(dev, x.share(), 1);
      return std::string();
    }
    auto shorter = tensor_of<float>(dev, {0, 0});
    auto other = tensor_of<std::int32_t>(dev, {0, 0, 0});
    auto text = message_of([&] { world.recv(dev, shorter.mut(), 0); });
    append_text(text, "; " + message_of([&] { world.recv(dev, other.mut(), 0); }));
    auto right = tensor_of<float>(dev, {0, 0, 0});
    world.recv(dev, right.mut(), 0);
    return right.to_host<float>(dev) == x.to_host<float>(dev) ? text : "lost";
  });
  CHECK(contains(messages[1], "rank 1 expects 2 f32, rank 0 sent 3 f32 at thread_comm.cpp:"));
  CHECK(contains(messages[1], "rank 1 expects 3 i32, rank 0 sent 3 f32"));
}

TEST_CASE("threads: a hundred rounds of everything") { on_worlds_of({4}, wrong_rounds); }

}  // namespace
