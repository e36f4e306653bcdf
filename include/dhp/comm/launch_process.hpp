// run_process_rank runs this process as one rank of a launched job: it connects to the others, is monitored with them,
// runs a body, and reports how it ended. The caller chooses the engine: connect_gloo, connect_nccl, or an MpiSession.
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
  /// Limit of the rendezvous, in seconds; without deadlines also of each wait and of a rank's silence. 0: no limit.
  double timeout_s = 300;
  std::shared_ptr<const Deadlines> deadlines{};  ///< limits by section, which the program reports
  std::shared_ptr<FlightRecorder> recorder{};    ///< records this rank's calls; null makes one
  std::string network_interface{};  ///< interface to listen on ("eth0"); empty: that towards rank 0
  /// Receives a message for each client that the rendezvous refuses. Other threads may call this too.
  std::function<void(const std::string& message)> log{};
  /// Called when the world has ended and this rank does not return from its own work: see WatchOptions.
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

/// Throws a rank's exception as run_ranks does: Error("rank 3: ..."). Aborted names the rank that is the cause.
[[noreturn]] inline void leave_rank(int rank, const std::exception& error, CallSite where) {
  if (const auto* const aborted = dynamic_cast<const Aborted*>(&error)) throw Aborted(*aborted);
  const auto* const own = dynamic_cast<const Error*>(&error);
  throw Error(concat("rank ", rank, ": ", sentence_of(error)),
              own != nullptr ? own->where() : where);
}
/// Runs work() of a rank. If work() throws, publishes the exception to the other ranks, then throws it with the rank.
void run_in(Latch& latch, int rank, auto work, CallSite where) {
  try {
    work();
  } catch (const std::exception& error) {
    if (!latch.ended()) latch.abort(sentence_of(error));
    leave_rank(rank, error, where);
  } catch (...) {
    latch.abort("an exception of unknown type");
    throw;
  }
}

}  // namespace detail

/// Makes the world's communicator by connect(watchdog, me, options), a collective call, and runs body(Comm<Dev>). An
/// exception of body reaches the caller as Error("rank 3: ...") when all ranks know of it. Throws Aborted if another
/// rank is the cause.
void run_process_rank(const ProcessRank& me, auto connect, auto body,
                      const ProcessOptions& options = {}, CallSite where = CallSite::current()) {
  const auto store = rendezvous(detail::rendezvous_of(me, options));
  const auto watchdog = std::make_shared<ProcessWatchdog>(store, me.rank, me.size, options.watch());
  const auto work = [&] {
    body(connect(watchdog, me, options));
    watchdog->finish(me.rank);
  };
  detail::run_in(*watchdog, me.rank, work, where);
}

/// Runs body(Comm<Dev>) on each rank of a job. If a launcher (mpirun, srun, torchrun) started this process, the process
/// is one rank of a job whose size the launcher chose, connected by `connect`. Otherwise `ranks` threads run the body.
template <class Dev, class Connect, class Body>
void run_job(int ranks, Connect connect, Body body, const ProcessOptions& options = {}) {
  const auto me = ProcessRank::from_environment();
  if (me) run_process_rank(*me, connect, body, options);
  else run_ranks<Dev>(ranks, body);
}

}  // namespace dhp
