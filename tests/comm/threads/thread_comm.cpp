#include <dhp/comm/threads/thread_comm.hpp>
#include <tests/comm/collectives.hpp>

TEST_CASE("threads: passes the tests of every communicator") {
  for (const auto& [name, sizes, wrong] : all_checks())
    for (const int n : sizes) {
      CAPTURE(name);
      for (const auto& text : on_ranks(n, wrong)) CHECK(text == "");
    }
  std::atomic<int> sent = 0;
  for (const auto& text :
       on_ranks(2, [&](Comm<Cpu>&world, Cpu&dev) { return wrong_capacity(world, dev, sent); }))
    CHECK(text == "");
}

TEST_CASE("threads: a sent tensor is read-only until it is received") {
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
  CHECK(has(results[0], "a shared tensor of shape [2] is read-only"));
  CHECK(has(results[0], "; then it is free"));
}

TEST_CASE("threads: a message of another type or size is refused and kept") {
  const auto messages = on_ranks(2, [](Comm<Cpu>& world, Cpu& dev) {
    auto x = tensor_of<float>(dev, {1, 2, 3});
    if (world.rank() == 0) {
      world.send(dev, x.share(), 1);
      return std::string();
    }
    auto shorter = tensor_of<float>(dev, {0, 0});
    auto other = tensor_of<std::int32_t>(dev, {0, 0, 0});
    auto text = message_of([&] { world.recv(dev, shorter.mut(), 0); });
    dhp::detail::append_text(text, "; " + message_of([&] { world.recv(dev, other.mut(), 0); }));
    auto received = tensor_of<float>(dev, {0, 0, 0});
    world.recv(dev, received.mut(), 0);
    return received.to_host<float>(dev) == x.to_host<float>(dev) ? text : "lost";
  });
  CHECK(has(messages[1], "rank 1 expects 2 f32, rank 0 sent 3 f32 at thread_comm.cpp:"));
  CHECK(has(messages[1], "rank 1 expects 3 i32, rank 0 sent 3 f32"));
}
