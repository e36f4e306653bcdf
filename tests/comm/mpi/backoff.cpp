// How often something is looked at that does not move, and that does.
#include <dhp/comm/mpi/backoff.hpp>

#include <doctest/doctest.h>
#include <sys/resource.h>

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
  dhp::comm::Backoff pause(eager_s);
  int count = 0;
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() <
         seconds) {
    pause(moved);
    ++count;
  }
  return count;
}

TEST_CASE("backoff: who waits for long needs no core") {
  const double before_s = core_seconds();
  CHECK(looks(0.001, 0.5, false) < 20000);
  CHECK(core_seconds() - before_s < 0.1);
}

TEST_CASE("backoff: it sleeps only when nothing has moved for as long as it was told") {
  const auto sleeps_in = [](double eager_s, bool moved) {
    const auto sleeps = [] {
      rusage used{};
      ::getrusage(RUSAGE_THREAD, &used);
      return used.ru_nvcsw;
    };
    const auto before = sleeps();
    static_cast<void>(looks(eager_s, 0.1, moved));
    return sleeps() - before;
  };
  CHECK(sleeps_in(10, false) < 5);
  CHECK(sleeps_in(0.01, true) < 5);
  CHECK(sleeps_in(0.01, false) > 20);
}

}  // namespace
