#include <dhp/comm/signal.hpp>

#include <doctest/doctest.h>

#include <thread>

namespace {

using dhp::Signal;

TEST_CASE("signal: counts changes, and the end is none") {
  Signal signal;
  const auto start = signal.read();
  CHECK(!Signal::ended(start));
  signal.change();
  CHECK(Signal::changed(start, signal.read()));
  const auto before = signal.read();
  signal.end();
  CHECK(Signal::ended(signal.read()));
  CHECK(!Signal::changed(before, signal.read()));
  CHECK(!signal.change_unless_ended());
  CHECK(!Signal::changed(before, signal.read()));
  signal.change();  // what was under way may still finish
  CHECK(Signal::changed(before, signal.read()));
  CHECK(Signal::ended(signal.read()));
}

TEST_CASE("signal: a change wakes who waits") {
  Signal signal;
  const auto before = signal.read();
  int value = 0;
  std::thread other([&] {
    value = 1;
    signal.change();
  });
  signal.wait(before);
  CHECK(value == 1);
  other.join();
}

}  // namespace
