// Doorbell: who listens is woken, and no ring between a look and the sleep is lost.
#include <dhp/comm/doorbell.hpp>

#include <doctest/doctest.h>

#include <thread>

namespace {

using dhp::Doorbell;

TEST_CASE(
    "doorbell: a ring after the look ends the sleep at once, none ends it when it is long enough") {
  Doorbell bell;
  const Doorbell::Listening listening(bell);
  const auto seen = listening.rings();
  CHECK_FALSE(listening.sleep(seen, 10));
  bell.ring();
  CHECK(listening.sleep(seen, 600'000));
}

TEST_CASE("doorbell: it knows whether others listen") {
  Doorbell bell;
  const Doorbell::Listening one(bell);
  CHECK(one.alone());
  const Doorbell::Listening two(bell);
  CHECK_FALSE(one.alone());
}

// Each answers the other: a ring that is lost is a sleep to its end.
TEST_CASE("doorbell: a thousand rounds between two") {
  Doorbell bells[2];
  std::atomic<int> count = 0;
  bool in_time[2] = {true, true};
  const auto play = [&](int me) {
    while (count < 2000) {
      const Doorbell::Listening listening(bells[me]);
      const auto seen = listening.rings();
      if (count % 2 == me) {
        ++count;
        bells[1 - me].ring();
      } else if (count < 2000 && !listening.sleep(seen, 20'000)) {
        in_time[me] = false;
        count = 2000;
      }
    }
    bells[1 - me].ring();
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  CHECK(in_time[0]);
  CHECK(in_time[1]);
}

}  // namespace
