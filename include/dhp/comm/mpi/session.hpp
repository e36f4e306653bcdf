// MpiSession runs dhp inside a program that uses MPI. dhp works on duplicates of the program's communicator, and does
// not initialize or finalize MPI, end processes, or change signals. Needs MPI and OpenSSL.
#pragma once

#include <dhp/comm/launch_process.hpp>
#include <dhp/comm/messages/process_comm.hpp>
#include <dhp/comm/mpi/mpi_messages.hpp>
#include <dhp/comm/rendezvous/tcp_store.hpp>

#include <mpi.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

namespace detail {

/// Returns every rank's text on all ranks, cut off after 1023 characters. Collective.
[[nodiscard]] inline std::vector<std::string> texts_of_all(MpiContext& comm,
                                                           const std::string& mine) {
  constexpr int width = 1024;
  const auto size = as_size(comm.size());
  // The first 1024 bytes are this rank's own text.
  const auto memory = std::make_shared<std::vector<char>>((size + 1) * width);
  std::copy_n(mine.begin(), std::min<std::size_t>(mine.size(), width - 1), memory->begin());
  char* const all = memory->data() + width;
  MPI_Request request = MPI_REQUEST_NULL;
  comm.call([&] {
    check_mpi(MPI_Iallgather(memory->data(), width, MPI_CHAR, all, width, MPI_CHAR, comm.comm(),
                             &request),
              "MPI_Iallgather");
  });
  comm.finish(request, "MPI_Iallgather", memory);
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < size; ++rank) texts.emplace_back(all + rank * width);
  return texts;
}

/// Makes the store by which the ranks watch each other. Rank 0 holds it, and sends its address and a secret by MPI; the
/// store itself works over TCP. Collective: all return, or all throw. address: of rank 0; empty: detected.
[[nodiscard]] inline std::shared_ptr<KeyValueStore> rendezvous_over_mpi(MpiContext& comm,
                                                                        const std::string& address,
                                                                        double connect_s) {
  const auto hosts = texts_of_all(comm, host_name());
  RendezvousOptions options{.rank = comm.rank(),
                            .size = comm.size(),
                            .job = "session",
                            .timeout_s = connect_s,
                            .operation_timeout_s = std::min(10.0, connect_s),
                            .ports = 1};
  std::shared_ptr<KeyValueStore> store;
  std::string invitation;
  if (comm.rank() == 0) {
    try {
      const auto other = std::find_if(hosts.begin(), hosts.end(),
                                      [&](const auto& host) { return host != hosts.front(); });
      options.master = !address.empty()       ? address
                       : other == hosts.end() ? "127.0.0.1"
                                              : address_towards(*other);
      options.secret = hex(nonce());
      auto server = std::make_shared<TcpStoreServer>(options);
      invitation = concat(server->port(), " ", options.secret, " ", options.master);
      store = std::move(server);
    } catch (const Error& error) {
      invitation = concat("rank 0 has no address for the other ranks: ", error.sentence(),
                          "; MpiSessionOptions::address can name one");
    }
  }
  invitation = texts_of_all(comm, invitation).front();
  const auto first = invitation.find(' '), second = invitation.find(' ', first + 1);
  check(invitation.find_first_not_of("0123456789") == first, invitation);
  options.port = std::stoi(invitation.substr(0, first));
  options.secret = invitation.substr(first + 1, second - first - 1);
  options.master = invitation.substr(second + 1);

  std::string problem;
  try {
    if (comm.rank() != 0) store = std::make_shared<TcpStore>(options);
  } catch (const Error& error) {
    problem = error.sentence();
  }
  const auto problems = texts_of_all(comm, problem);
  check(problem.empty(), problem);
  for (std::size_t rank = 0; rank < problems.size(); ++rank)
    check(problems[rank].empty(), "rank ", rank, " cannot reach rank 0 at ",
          HostPort{options.master, options.port},
          "; MpiSessionOptions::address can name another address of rank 0");
  return store;
}

}  // namespace detail

struct MpiSessionOptions {
  double timeout_s = 300;  ///< limit of each wait for a rank and of a rank's silence; 0: none
  std::shared_ptr<const Deadlines> deadlines{};  ///< replaces timeout_s once all ranks have met
  std::shared_ptr<FlightRecorder> recorder{};    ///< records this rank's calls; null makes one
  /// Address at which other ranks reach rank 0's machine; empty: detected.
  std::string address{};
  /// dhp holds this lock during each MPI call. If a program with MPI_THREAD_SERIALIZED calls MPI on several threads, it
  /// must hold the lock too. Null: the session makes its own lock.
  std::shared_ptr<std::mutex> lock{};
  /// Called if this rank does not return from its own work after the world has ended: see WatchOptions.
  std::function<void(const std::string& message)> stuck{};
};

class MpiSession : detail::NonCopyable {
 public:
  /// Collective over `host`, like MPI_Comm_dup. The program may use and free `host` as before.
  explicit MpiSession(MPI_Comm host, MpiSessionOptions options = {}) {
    if (!options.lock) options.lock = std::make_shared<std::mutex>();
    context_ = std::make_shared<detail::MpiContext>(host, options.timeout_s, options.lock);
    if (context_->size() == 1) return;
    constexpr double forever_s = 1e8;
    const auto store = detail::rendezvous_over_mpi(
        *context_, options.address, options.timeout_s > 0 ? options.timeout_s : forever_s);
    const int rank = context_->rank(), size = context_->size();
    const auto watchdog =
        std::make_shared<ProcessWatchdog>(store, rank, size,
                                          WatchOptions{.timeout_s = options.timeout_s,
                                                       .deadlines = options.deadlines,
                                                       .recorders = {options.recorder},
                                                       .name = detail::process_name(),
                                                       .stuck = options.stuck});
    latch_ = watchdog;
    world_ = detail::recorded(
        *watchdog, detail::ProcessComm(watchdog, rank, size,
                                       std::make_shared<detail::MpiMessages>(*watchdog, context_)));
  }
  /// Closes the session. During an exception, first tells the other ranks that this rank has failed.
  ~MpiSession() {
    try {
      if (std::uncaught_exceptions() > exceptions_ && !latch_->ended())
        latch_->abort(
            "an exception has left the scope of its MpiSession; run() tells the other ranks its "
            "text");
      close();
    } catch (const std::exception&) {  // the world has ended, and its calls have thrown the reason
    }
  }

  /// Returns the communicator of all ranks, which is valid as long as the session is open.
  [[nodiscard]] Comm<Cpu> world() const { return world_; }

  /// Runs body(world()); the session is closed if body throws. An exception is published to all ranks, then thrown as
  /// Error("rank 3: ..."). Throws Aborted if another rank is the cause.
  void run(auto body, CallSite where = CallSite::current()) {
    try {
      detail::run_in(
          *latch_, context_->rank(), [&] { body(world()); }, where);
    } catch (...) {
      try {
        close();
      } catch (const std::exception&) {  // the exception of the body says more
      }
      throw;
    }
  }

  /// Waits for all ranks, then frees the duplicates. Collective. Throws Aborted if the world ends first.
  void close() {
    if (std::exchange(closed_, true)) return;
    int finalized = 0;
    check_mpi(MPI_Finalized(&finalized), "MPI_Finalized");
    if (finalized != 0) return;
    const auto end = [&] {
      world_.barrier();
      latch_->finish(context_->rank());
    };
    detail::run_in(*latch_, context_->rank(), end, CallSite::current());
    context_->call([&] { context_->close(); });
  }

 private:
  std::shared_ptr<detail::MpiContext> context_;
  std::shared_ptr<Latch> latch_ = std::make_shared<Latch>();  // of more than one rank, a watchdog
  Comm<Cpu> world_{};
  bool closed_ = false;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace dhp
