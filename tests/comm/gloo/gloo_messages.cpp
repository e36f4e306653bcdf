// GlooMessages over the loopback interface of this machine.
#include <dhp/comm/gloo/gloo_messages.hpp>
#include <tests/comm/process_ranks.hpp>
#include <tests/support/child.hpp>

#include <cerrno>

namespace {

using dhp::detail::GlooMessages;

TEST_CASE("gloo: passes the tests of every engine") {
  check_processes([](const std::shared_ptr<ProcessWatchdog>& world) {
    return std::make_shared<GlooMessages>(world, "127.0.0.1");
  });
}

TEST_CASE("gloo: versions that borrow the store and versions that share it both connect") {
  using gloo::rendezvous::Store;
  using Device = std::shared_ptr<gloo::transport::Device>;
  struct Borrows {
    void connectFullMesh(Store& store, Device&) { met = &store; }
    const Store* met = nullptr;
  } borrows;
  struct Shares {
    void connectFullMesh(std::shared_ptr<Store> store, Device&) { met = std::move(store); }
    std::shared_ptr<Store> met;
  } shares;
  const auto store = std::make_shared<dhp::detail::GlooStore>(nullptr, "gloo/");
  Device device;
  dhp::detail::connect_all(borrows, store, device);
  dhp::detail::connect_all(shares, store, device);
  CHECK(borrows.met == store.get());
  CHECK(shares.met == store);
}

TEST_CASE("gloo: an address of another machine is refused") {
  const auto ends = ends_with(2, 5, [](const std::shared_ptr<ProcessWatchdog>& world) {
    const GlooMessages there(world, "192.0.2.1");  // reserved by RFC 5737
  });
  CHECK(has(ends.front(),
            "this machine cannot listen at 192.0.2.1: Cannot assign requested address"));
}

// The wait status of a process that writes to a pipe without a reader.
template <class Write>
int status_after(Write write_to) {
  const int status = Child([&](const Child::Send&) {
                       ::signal(SIGPIPE, SIG_DFL);
                       int ends[2];
                       check(::pipe(ends) == 0, "there is no pipe");
                       ::close(ends[0]);
                       write_to(ends[1]);
                     }).wait();
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

TEST_CASE("no pipe signal: SIGPIPE is blocked only while the guard lives") {
  const auto write_a_byte = [](int end) {
    if (::write(end, "x", 1) == -1 && errno != EPIPE) ::_exit(8);
  };
  CHECK(status_after(write_a_byte) == -SIGPIPE);
  CHECK(status_after([&](int end) {
          const dhp::detail::NoPipeSignal quiet;
          write_a_byte(end);
          write_a_byte(end);
        }) == 0);
  CHECK(status_after([&](int end) {
          { const dhp::detail::NoPipeSignal quiet; }
          write_a_byte(end);
        }) == -SIGPIPE);
}

TEST_CASE("no pipe signal: a SIGPIPE that was pending stays pending") {
  CHECK(status_after([](int end) {
          sigset_t pipe{}, pending{};
          ::sigemptyset(&pipe);
          ::sigaddset(&pipe, SIGPIPE);
          ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
          static_cast<void>(::write(end, "x", 1) == 1);
          { const dhp::detail::NoPipeSignal quiet; }
          ::sigpending(&pending);
          ::_exit(::sigismember(&pending, SIGPIPE) == 1 ? 7 : 6);
        }) == 7);
}

}  // namespace
