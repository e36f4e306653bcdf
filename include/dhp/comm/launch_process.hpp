// run_process_rank runs this process as one rank of a launched job: it connects to the other ranks, starts a watchdog,
// runs a body, and reports how it ended. connect_gloo and connect_nccl choose the engine; for MPI, see MpiSession.
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
  /// Time limit of the rendezvous; without `deadlines`, also of each wait and of a rank's silence. 0: no limit.
  double timeout_s = 300;
  std::shared_ptr<const Deadlines> deadlines{};  ///< limits by section of the program
  std::shared_ptr<FlightRecorder> recorder{};    ///< records this rank's calls; null: a new one
  std::string network_interface{};  ///< interface to listen on ("eth0"); empty: detected
  /// Receives a message for each client that the rendezvous refuses; may be called on another thread.
  std::function<void(const std::string& message)> log{};
  /// Called if this rank does not return from its own work after the world has ended: see WatchOptions.
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
  constexpr double forever_s = 1e8;
  const double limit_s = options.timeout_s > 0 ? options.timeout_s : forever_s;
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

/// Throws a rank's exception like run_ranks, as Error("rank 3: ..."). Aborted stays as it is: it names the failed rank.
[[noreturn]] inline void leave_rank(int rank, const std::exception& error, CallSite where) {
  if (const auto* const aborted = dynamic_cast<const Aborted*>(&error)) throw Aborted(*aborted);
  const auto* const own = dynamic_cast<const Error*>(&error);
  throw Error(said_by(rank, sentence_of(error)), own != nullptr ? own->where() : where);
}
/// Runs work(). If work() throws, tells the other ranks, then throws Error("rank 3: ...").
void run_in(Latch& latch, int rank, auto work, CallSite where) {
  try {
    work();
  } catch (const std::exception& error) {
    if (!latch.ended()) latch.abort(sentence_of(error));
    leave_rank(rank, error, where);
  } catch (...) {
    latch.abort("an exception of unknown type");
    throw Error(concat("rank ", rank, ": an exception of unknown type"), where);
  }
}

}  // namespace detail

/// Makes the world's communicator by connect(watchdog, me, options), a collective call, and runs body(Comm<Dev>). An
/// exception of body is thrown as Error("rank 3: ...") after all ranks know of it. Throws Aborted if another rank has
/// failed.
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

/// Runs body(Comm<Dev>) on each rank of a job. If a launcher (mpirun, srun, torchrun) started this process, it runs one
/// rank of the job, whose size the launcher chose, and connects by `connect`. Otherwise `ranks` threads run the body,
/// and the options have no effect. A program may call it several times, one after another.
template <class Dev, class Connect, class Body>
void run_job(int ranks, Connect connect, Body body, const ProcessOptions& options = {}) {
  const auto me = ProcessRank::from_environment();
  if (me) run_process_rank(*me, connect, body, options);
  else run_ranks<Dev>(ranks, body);
}

}  // namespace dhp
