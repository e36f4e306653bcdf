// How often something is looked at that does not move, and that does.
#include <dhp/comm/poll_pause.hpp>

#include <doctest/doctest.h>

#include <ctime>

namespace {

using namespace dhp;

double core_seconds() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

// Looks within `seconds`, each of which finds something new or not.
int looks(double eager_s, double seconds, bool moved) {
  const auto start = std::chrono::steady_clock::now();
  PollPause pause(eager_s);
  int count = 0;
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() <
         seconds) {
    pause(moved);
    ++count;
  }
  return count;
}

TEST_CASE("poll_pause: who waits for long needs no core") {
  const double before_s = core_seconds();
  CHECK(looks(0.001, 0.5, false) < 20000);
  CHECK(core_seconds() - before_s < 0.1);
}

TEST_CASE("poll_pause: where something moves, the next look is at once") {
  // Pauses of 20 us and more allow a twentieth of it.
  const int lazy = looks(0, 0.1, false), eager = looks(0.001, 0.1, true);
  CHECK(eager > 10 * lazy);
}

TEST_CASE("poll_pause: it looks again at once for as long as it was told") {
  CHECK(looks(10, 0.1, false) > 10 * looks(0.0001, 0.1, false));
}

}  // namespace
