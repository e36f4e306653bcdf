// run_process_rank: this process as one rank of a launched job: it connects to the others, is monitored with them,
// runs, and reports how it ended. The caller chooses the engine: connect_gloo, connect_nccl, or an MpiSession.
#pragma once

#include <dhp/comm/launch.hpp>
#include <dhp/comm/observe/record.hpp>
#include <dhp/comm/rendezvous/process_rank.hpp>
#include <dhp/comm/rendezvous/rendezvous.hpp>
#include <dhp/comm/watch/process_watchdog.hpp>

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <string>

namespace dhp {

struct ProcessOptions {
  /// Limit of the rendezvous; without deadlines also of each wait for a rank, and of a rank's silence. 0: none.
  double timeout_s = 300;
  std::shared_ptr<const Deadlines> deadlines{};  ///< the program reports there what it does
  std::shared_ptr<FlightRecorder> recorder{};    ///< records this rank's calls; null: private
  std::string network_interface{};  ///< interface to listen on ("eth0"); empty: the route to rank 0
  /// Receives clients refused at the rendezvous. Called by other threads too.
  std::function<void(const std::string& message)> log{};
  /// The world has ended, and this rank does not come back from its own work: see WatchOptions.
  std::function<void(const std::string& message)> stuck{};
  double stuck_after_s = 10;

  [[nodiscard]] WatchOptions watch() const {
    return {.timeout_s = timeout_s,
            .deadlines = deadlines,
            .recorders = {recorder},
            .name = detail::process_name(),
            .stuck = stuck,
            .stuck_after_s = stuck_after_s};
  }
};

namespace detail {

[[nodiscard]] inline RendezvousOptions rendezvous_of(const ProcessRank& me,
                                                     const ProcessOptions& options) {
  constexpr double for_ever_s = 1e8;
  const double limit_s = options.timeout_s > 0 ? options.timeout_s : for_ever_s;
  return {.rank = me.rank,
          .size = me.size,
          .master = me.master.empty() ? "127.0.0.1" : me.master,
          .port = me.port,
          .job = me.job,
          .secret = dhp::job_secret(),
          .timeout_s = limit_s,
          .operation_timeout_s = std::min(10.0, limit_s),
          .variables = me.variables,
          .log = options.log};
}

/// Runs work() of a rank; publishes its exception to the other ranks, then rethrows it.
void run_in(Latch& latch, auto work) {
  try {
    work();
  } catch (const std::exception& error) {
    if (!latch.ended()) latch.abort(sentence_of(error));
    throw;
  }
}

}  // namespace detail

/// connect(watchdog, me, options) makes the communicator of the world: collective. body(Comm<Dev>) is run with it, and
/// its exception reaches the caller when all ranks know of it. Throws Aborted if another rank is the cause.
void run_process_rank(const ProcessRank& me, auto connect, auto body,
                      const ProcessOptions& options = {}) {
  const auto store = rendezvous(detail::rendezvous_of(me, options));
  const auto watchdog = std::make_shared<ProcessWatchdog>(store, me.rank, me.size, options.watch());
  detail::run_in(*watchdog, [&] {
    body(connect(watchdog, me, options));
    watchdog->finish(me.rank);
  });
}

/// body(Comm<Dev>) on each rank of a job: where a launcher (mpirun, srun, torchrun) has started this process, as one
/// of its ranks, whose number it chooses, connected by `connect`; started plainly, on `ranks` threads.
template <class Dev, class Connect, class Body>
void run_job(int ranks, Connect connect, Body body, const ProcessOptions& options = {}) {
  const auto me = ProcessRank::from_environment();
  if (me) run_process_rank(*me, connect, body, options);
  else run_ranks<Dev>(ranks, body);
}

}  // namespace dhp
