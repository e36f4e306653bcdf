#include <dhp/core/on_signal.hpp>
#include <tests/comm/ranks.hpp>

#include <sys/wait.h>
#include <unistd.h>

namespace {

using dhp::detail::OnSignal;

// Waits, with a deadline, until the condition holds.
template <class Condition>
bool soon(Condition condition) {
  const auto start = std::chrono::steady_clock::now();
  while (!condition() && seconds_since(start) < hang_s) sleep_ms(1);
  return condition();
}
// Returns the exit status of a child process that runs body; -n if signal n ended it.
template <class Body>
int status_of(Body body) {
  const auto child = ::fork();
  if (child == 0) {
    ::alarm(60);  // ends the child if it hangs
    body();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

TEST_CASE("on signal: another thread makes one call for each signal") {
  std::atomic<int> calls = 0;
  std::atomic<bool> stop = false, elsewhere = true;
  const auto me = std::this_thread::get_id();
  const OnSignal watch({SIGUSR1}, [&](int) {
    if (std::this_thread::get_id() == me) elsewhere = false;
    ++calls;
  });
  std::thread worker([&] {
    while (!stop) std::this_thread::yield();
  });
  for (int signal = 1; signal <= 20; ++signal) {
    ::kill(::getpid(), SIGUSR1);
    CHECK(soon([&] { return calls == signal; }));
  }
  stop = true;
  worker.join();
  CHECK(elsewhere);
}

TEST_CASE("on signal: several instances do not take each other's signals") {
  CHECK(status_of([] {
          std::atomic<int> calls = 0;
          const OnSignal first({SIGUSR1}, [&](int) { ++calls; });
          const OnSignal second({SIGUSR2}, [&](int) { calls += 10; });
          ::kill(::getpid(), SIGUSR2);
          ::kill(::getpid(), SIGUSR1);
          ::_exit(soon([&] { return calls == 11; }) ? 7 : 9);
        }) == 7);
}

TEST_CASE("on signal: a signal that the process ignores, as under nohup, stays ignored") {
  CHECK(status_of([] {
          ::signal(SIGHUP, SIG_IGN);
          std::atomic<int> calls = 0;
          const OnSignal watch({SIGHUP, SIGUSR1}, [&](int number) { calls += number; });
          ::kill(::getpid(), SIGHUP);  // would be taken first, since its number is lower
          ::kill(::getpid(), SIGUSR1);
          ::_exit(soon([&] { return calls > 0; }) ? calls.load() : 0);
        }) == SIGUSR1);
}

TEST_CASE("on signal: the destructor waits for a call in progress") {
  std::atomic<bool> begun = false, done = false;
  {
    const OnSignal watch({SIGUSR1}, [&](int) {
      begun = true;
      sleep_ms(200);
      done = true;
    });
    ::kill(::getpid(), SIGUSR1);
    CHECK(soon([&] { return begun.load(); }));
  }
  CHECK(done);
}

TEST_CASE("on signal: a signal that arrives during the destructor is harmless") {
  CHECK(status_of([] {
          {
            std::atomic<bool> begun = false;
            const OnSignal watch({SIGUSR1}, [&](int) {
              begun = true;
              sleep_ms(100);
            });
            ::kill(::getpid(), SIGUSR1);
            if (!soon([&] { return begun.load(); })) ::_exit(9);
            ::kill(::getpid(), SIGUSR1);
          }
          ::_exit(7);
        }) == 7);
}

TEST_CASE("on signal: the previous handler is restored") {
  CHECK(status_of([] { ::raise(SIGUSR1); }) == -SIGUSR1);
  CHECK(status_of([] {
          {
            const OnSignal watch({SIGUSR1}, [](int) {});
          }
          ::raise(SIGUSR1);
        }) == -SIGUSR1);
}

}  // namespace
