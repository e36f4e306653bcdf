// run_process_rank: this process as one rank of a world of processes, which something outside has started: it meets
// the others, is watched with them, runs, and says how it ended. What carries their collectives is the caller's
// choice: connect_sockets (comm/launch_sockets.hpp), connect_gloo (comm/launch_gloo.hpp), connect_nccl
// (comm/launch_nccl_process.hpp).
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/comm/meet/address.hpp>
#include <dhp/comm/meet/process_rank.hpp>
#include <dhp/comm/meet/rendezvous.hpp>
#include <dhp/comm/process_world.hpp>

#include <algorithm>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace dhp {

struct ProcessOptions {
  /// For ranks to meet; without deadlines also of every wait for another, and of a rank's silence; 0: none.
  double timeout_s = 300;
  std::shared_ptr<const Deadlines> deadlines{};  ///< the program says there what it is at
  std::shared_ptr<Ledger> ledger{};  ///< of this rank's calls, for whoever wants to look
  std::string
      network_interface{};    ///< where this rank listens ("eth0"); empty: what leads to rank 0
  bool shared_memory = true;  ///< between ranks of one machine, on CPUs; false: sockets there, too
  /// Strangers that were refused at the rendezvous, memory that could not be shared. Called by other threads, too.
  std::function<void(const std::string& message)> log{};
  /// The world has ended, and this rank does not come back from its own work: see ProcessWorld::Options.
  std::function<void(const std::string& message)> stuck{};
};

namespace detail {

[[nodiscard]] inline RendezvousOptions rendezvous_of(const ProcessRank& me,
                                                     const ProcessOptions& options) {
  constexpr double for_ever_s = 1e8;
  RendezvousOptions made;
  made.rank = me.rank;
  made.size = me.size;
  if (!me.master.empty()) made.master = me.master;
  made.port = me.port;
  made.job = me.job;
  made.secret = job_secret();
  made.timeout_s = options.timeout_s > 0 ? options.timeout_s : for_ever_s;
  if (options.timeout_s > 0)
    made.operation_timeout_s = std::min(made.operation_timeout_s, options.timeout_s);
  made.log = options.log;
  return made;
}

}  // namespace detail

/// connect(world, me, options) makes the communicator of the world: collective. body(Comm<Dev>) is run with it, and
/// what it throws goes on to the caller when all ranks have been told; Aborted where another rank is to blame.
template <class Connect, class Body>
void run_process_rank(const ProcessRank& me, Connect connect, Body body,
                      const ProcessOptions& options = {}) {
  const auto store = meet(detail::rendezvous_of(me, options));
  ProcessWorld::Options watch;
  watch.timeout_s = options.timeout_s;
  watch.name = process_name();
  watch.stuck = options.stuck;
  watch.deadlines = options.deadlines;
  watch.ledger = options.ledger;
  const auto world = std::make_shared<ProcessWorld>(store, me.rank, me.size, std::move(watch));
  const auto failed = [&](const std::string& why) {
    if (!world->ended()) world->abort(why);
  };
  try {
    body(connect(world, me, options));
    world->finish();
  } catch (const Error& error) {
    failed(error.sentence());
    throw;
  } catch (const std::exception& error) {
    failed(error.what());
    throw;
  }
}

}  // namespace dhp
