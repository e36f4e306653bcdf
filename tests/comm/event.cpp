#include <dhp/comm/event.hpp>
#include <dhp/device/cpu.hpp>
#include <tests/support/test.hpp>

namespace {

TEST_CASE("event: a default event is done") {
  Event<Cpu> event;
  CHECK(event.done());
  event.wait();
  event.complete();
  Cpu dev;
  event.wait(dev);
}

TEST_CASE("event: a copy waits for the same collective") {
  auto event = Event<Cpu>::pending();
  const auto copy = event;
  CHECK(!copy.done());
  int value = 0;  // ThreadSanitizer checks that wait() orders the write before the read
  std::thread other([&, event]() mutable {
    value = 7;
    event.complete();
  });
  copy.wait();
  CHECK(value == 7);
  CHECK(event.done());
  other.join();
}

TEST_CASE("event: a failure is thrown at every wait") {
  auto event = Event<Cpu>::pending();
  event.complete(std::make_exception_ptr(dhp::Error("cut")));
  CHECK(event.done());
  Cpu dev;
  for (int round = 0; round < 2; ++round) {
    CHECK_THROWS_AS(event.wait(), dhp::Error);
    CHECK_THROWS_AS(event.wait(dev), dhp::Error);
  }
}

// A device that works asynchronously, with only the members that events need.
struct Streamed {
  static constexpr bool host_accessible = false;
  int number = 0;
};
struct Recorded final : Event<Streamed>::Work {
  explicit Recorded(std::vector<int>& log) : waits(&log) {}
  bool done() const override { return !waits->empty(); }
  void order() const override { waits->push_back(-1); }
  void order(Streamed& dev) const override { waits->push_back(dev.number); }
  std::vector<int>* waits;
};

TEST_CASE("event: on a streamed device, waits go through the communicator's own state") {
  Streamed dev{.number = 3};
  Event<Streamed> nobodys;
  CHECK(nobodys.done());
  nobodys.wait();
  nobodys.wait(dev);
  std::vector<int> waits;
  const Event<Streamed> event(std::make_shared<Recorded>(waits));
  const auto copy = event;
  CHECK(!copy.done());
  copy.wait();
  event.wait(dev);
  CHECK(waits == std::vector<int>{-1, 3});
  CHECK(copy.done());
}

}  // namespace
