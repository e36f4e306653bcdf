// run_process_rank: this process as one rank of a launched job: it connects to the others, is monitored with them,
// runs, and reports how it ended. The caller chooses the engine: connect_gloo, connect_nccl, or an MpiSession.
#pragma once

#include <dhp/comm/observe/record.hpp>
#include <dhp/comm/rendezvous/process_rank.hpp>
#include <dhp/comm/rendezvous/rendezvous.hpp>
#include <dhp/comm/watch/world.hpp>

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace dhp {

struct ProcessOptions {
  /// Limit of the rendezvous; without deadlines also of every wait for another rank, and of a rank's silence. 0:
  /// none.
  double timeout_s = 300;
  std::shared_ptr<const Deadlines> deadlines{};  ///< the program says there what it is at
  std::shared_ptr<FlightRecorder> recorder{};    ///< records this rank's calls; null: private
  std::string network_interface{};  ///< interface to listen on ("eth0"); empty: the route to rank 0
  /// Receives clients refused at the rendezvous. Called by other threads too.
  std::function<void(const std::string& message)> log{};
  /// Called if this rank's own work does not return after the world's end: see WorldOptions.
  std::function<void(const std::string& message)> stuck{};
  double stuck_after_s = 10;

  [[nodiscard]] WorldOptions world() const {
    return {.timeout_s = timeout_s,
            .deadlines = deadlines,
            .recorders = {recorder},
            .name = process_name(),
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

[[nodiscard]] inline std::string sentence_of(const std::exception& error) {
  const auto* const own = dynamic_cast<const Error*>(&error);
  return own != nullptr ? own->sentence() : error.what();
}

/// Runs work() of a rank; publishes its exception to the other ranks, then rethrows it.
template <class Work>
void run_in(World& world, Work work) {
  try {
    work();
  } catch (const std::exception& error) {
    if (!world.ended()) world.abort(sentence_of(error));
    throw;
  }
}

}  // namespace detail

/// connect(world, me, options) makes the world's communicator and is collective. Then runs body(Comm<Dev>). Its
/// exception is published to all ranks, then rethrown; Aborted if another rank is the cause.
template <class Connect, class Body>
void run_process_rank(const ProcessRank& me, Connect connect, Body body,
                      const ProcessOptions& options = {}) {
  const auto store = rendezvous(detail::rendezvous_of(me, options));
  const auto world = std::make_shared<World>(store, me.rank, me.size, options.world());
  detail::run_in(*world, [&] {
    body(connect(world, me, options));
    world->finish(me.rank);
  });
}

}  // namespace dhp
