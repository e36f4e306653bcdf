#include <dhp/core/wait_clock.hpp>
#include <tests/support/test.hpp>

namespace {

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

TEST_CASE("wait clock: waits of its own thread are counted by kind, nested ones once") {
  WaitClock clock;
  {
    const WaitClock::Scope outer(&clock, WaitClock::messages);
    const WaitClock::Scope inner(&clock, WaitClock::collectives);
    sleep_ms(20);
  }
  CHECK(clock.seconds(WaitClock::messages) >= 0.02);
  CHECK(clock.seconds(WaitClock::collectives) == 0);
  { const WaitClock::Scope next(&clock, WaitClock::collectives); }
  CHECK(clock.seconds(WaitClock::collectives) > 0);
  { const WaitClock::Scope none(nullptr, WaitClock::messages); }
}

TEST_CASE("wait clock: another thread's waits do not count") {
  WaitClock clock;
  std::thread([&] {
    const WaitClock::Scope wait(&clock, WaitClock::collectives);
    sleep_ms(5);
  }).join();
  CHECK(clock.seconds(WaitClock::collectives) == 0);
}

}  // namespace
