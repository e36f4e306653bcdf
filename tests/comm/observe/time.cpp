#include <dhp/comm/observe/time.hpp>
#include <dhp/comm/progress.hpp>
#include <tests/comm/ranks.hpp>

namespace {

// Rank 0 arrives 60 ms late.
void late(const Comm<Cpu>& world) {
  if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(60));
}
struct Waited {
  double collectives_s, messages_s;
};
// The time that rank 1 waits for rank 0. On a busy machine rank 1 may be late itself and wait less than `min_s`; then
// body runs again.
template <class Body>
Waited waited(double min_s, Body body) {
  Waited found{};
  for (int tries = 0; tries == 0 || (tries < 20 && found.collectives_s + found.messages_s < min_s);
       ++tries)
    found = on_ranks(2, [&](Comm<Cpu>& plain, Cpu&) {
      const auto clock = std::make_shared<WaitClock>();
      Cpu dev({.waits = clock});
      auto world = observe<Cpu>(plain, std::make_shared<detail::CallTiming>(clock));
      body(world, dev);
      return Waited{clock->seconds(WaitClock::collectives), clock->seconds(WaitClock::messages)};
    })[1];
  return found;
}

TEST_CASE("call timing: waits are counted for collectives of a group and for messages") {
  const auto collectives = waited(0.05, [](Comm<Cpu>& world, Cpu& dev) {
    auto x = Tensor<Cpu>::zeros(dev, DType::f32, Shape{4});
    auto part = world.split(0, world.rank());
    late(world);
    part.all_reduce(dev, x.mut()).wait(dev);
  });
  CHECK(collectives.collectives_s >= 0.05);
  CHECK(collectives.messages_s == 0);
  const auto messages = waited(0.05, [](Comm<Cpu>& world, Cpu& dev) {
    auto x = Tensor<Cpu>::zeros(dev, DType::f32, Shape{4});
    late(world);
    if (world.rank() == 0) world.send(dev, std::move(x), 1);
    else world.recv(dev, x.mut(), 0);
  });
  CHECK(messages.messages_s >= 0.05);
  CHECK(messages.collectives_s == 0);
}

TEST_CASE("call timing: an overlapped collective counts only the time that the rank waits") {
  const auto found = waited(0.02, [](Comm<Cpu>& world, Cpu& dev) {
    auto x = Tensor<Cpu>::zeros(dev, DType::f32, Shape{4});
    Progress<Cpu> beside(world);
    const auto start = dev.waits()->seconds(WaitClock::collectives);
    late(world);
    auto event = beside.start(dev, Collective<Cpu>::all_reduce(x.mut(), Reduce::sum));
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    check(dev.waits()->seconds(WaitClock::collectives) == start, "nobody has waited yet");
    event.wait(dev);
  });
  CHECK(found.collectives_s >= 0.02);
}

}  // namespace
