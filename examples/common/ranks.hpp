// How a program starts its ranks, or becomes one of them, and which device a rank has.
#pragma once

#include <dhp/comm/launch.hpp>
#include <dhp/comm/noted.hpp>
#if defined(DHP_HAS_NCCL) && defined(DHP_HAS_PROCESSES)
#include <dhp/comm/launch_nccl_process.hpp>
#elif defined(DHP_HAS_PROCESSES)
#include <dhp/comm/launch_sockets.hpp>
#if defined(DHP_HAS_GLOO)
#include <dhp/comm/launch_gloo.hpp>
#endif
#endif

#include "ledger_output.hpp"
#include "options.hpp"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

namespace examples {

/// This rank's device. Ranks on GPUs have each their own, numbered from --device.
template <class D>
[[nodiscard]] D make_device(const RunOptions& options, int local_rank) {
  const auto trace = options.trace.empty() ? nullptr : std::make_shared<dhp::Trace>();
  if constexpr (D::host_accessible) return D({.threads = options.threads, .trace = trace});
  else
    return D({.device = options.device + local_rank,
              .deterministic = options.deterministic,
              .tf32 = options.tf32,
              .trace = trace});
}

/// Learned where the user gives none.
[[nodiscard]] inline std::shared_ptr<dhp::Deadlines> deadlines_of(const RunOptions& options) {
  if (options.comm_timeout) return std::make_shared<dhp::Deadlines>(*options.comm_timeout);
  return std::make_shared<dhp::Deadlines>();
}

[[noreturn]] inline void fail_without(const char* needed) {
  dhp::fail("this program was built without what processes need to talk to each other (", needed,
            "); start it plainly, and its ranks are threads");
}

/// body(world) on the rank that this process is.
#if defined(DHP_HAS_PROCESSES)
#if !defined(DHP_HAS_NCCL)
template <class Body>
void run_between_cpus(const dhp::ProcessRank& me, const RunOptions& options, const Body& body,
                      const dhp::ProcessOptions& process) {
  if (options.transport != "gloo")
    return dhp::run_process_rank(me, dhp::connect_sockets, body, process);
#if defined(DHP_HAS_GLOO)
  dhp::run_process_rank(me, dhp::connect_gloo, body, process);
#else
  dhp::fail(
      "this program was built without Gloo (in Debian libgloo-dev); --transport sockets needs "
      "none");
#endif
}
#endif

template <class D, class Body>
void start_rank(const dhp::ProcessRank& me, const RunOptions& options,
                std::shared_ptr<const dhp::Deadlines> deadlines, Body body) {
  const auto say = [rank = me.rank](const std::string& message) {
    std::fprintf(stderr, "rank %d: %s\n", rank, message.c_str());
  };
  LedgerOutput ledger(options.ledger, me.rank, 1, me.size);
  dhp::ProcessOptions process;
  if (options.comm_timeout) process.timeout_s = *options.comm_timeout;
  process.deadlines = std::move(deadlines);
  process.ledger = ledger.of(me.rank);
  process.network_interface = options.network_interface;
  process.shared_memory = options.transport == "automatic";
  process.log = say;
  process.stuck = [say, &ledger](const std::string& message) {
    say(message + "; this rank does not come back from its work, and is ended");
    ledger.write();
    std::_Exit(1);
  };
#if defined(DHP_HAS_NCCL)
  dhp::run_process_rank(me, dhp::connect_nccl, body, process);
#else
  if constexpr (D::host_accessible) run_between_cpus(me, options, body, process);
  else fail_without("NCCL");
#endif
}
#else
template <class D, class Body>
[[noreturn]] void start_rank(const dhp::ProcessRank&, const RunOptions&,
                             const std::shared_ptr<const dhp::Deadlines>&, Body) {
  fail_without("OpenSSL, in Debian libssl-dev");
}
#endif

/// body(world, local rank, deadlines) on every rank that this process is to start: the one that it is, or all, as
/// threads. The deadlines are null where another rank of the process tells them what the run is at.
template <class D, class Body>
void start_ranks(const RunOptions& options, Body body) {
  const auto deadlines = deadlines_of(options);
  if (const auto me = options.process()) {
    return start_rank<D>(*me, options, deadlines, [&](dhp::Comm<D> world) {
      body(std::move(world), me->local_rank, deadlines.get());
    });
  }
  dhp::check(
      D::host_accessible || options.ledger.empty(),
      "on GPUs --ledger is for ranks that are processes, but this program starts its ranks as "
      "threads; start it by a launcher, or with --rank and --world-size");
  const int ranks = options.mesh.size();
  LedgerOutput ledger(options.ledger, 0, ranks, ranks);
  dhp::run_ranks<D>(ranks,
                    [&](dhp::Comm<D> world) {
                      const int rank = world.rank();
                      if constexpr (D::host_accessible)
                        if (ledger.asked_for())
                          world =
                              dhp::Comm<D>::of(dhp::NotedComm(std::move(world), ledger.of(rank)));
                      body(std::move(world), rank, rank == 0 ? deadlines.get() : nullptr);
                    },
                    {.deadlines = deadlines});
}

}  // namespace examples
