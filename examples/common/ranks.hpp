// How a program starts its ranks, or becomes one of them, and which device a rank has.
#pragma once

#include <dhp/comm/launch.hpp>
#include <dhp/comm/observe/check.hpp>
#include <dhp/comm/observe/time.hpp>
#include <dhp/comm/observe/trace.hpp>
#if defined(DHP_HAS_NCCL) && defined(DHP_HAS_PROCESSES)
#include <dhp/comm/elastic/run_elastic.hpp>
#include <dhp/comm/nccl/connect.hpp>
#elif defined(DHP_HAS_GLOO)
#include <dhp/comm/elastic/run_elastic.hpp>
#include <dhp/comm/gloo/connect.hpp>
#endif
#if defined(DHP_HAS_MPI) && !defined(DHP_HAS_NCCL)
#include <dhp/comm/mpi/session.hpp>

#include "mpi_process.hpp"
#endif

#include "elastic_store.hpp"
#include "flight_records.hpp"
#include "options.hpp"

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace examples {

/// This rank's device. Ranks on GPUs have each their own, numbered from --device.
template <class D>
[[nodiscard]] D make_device(const RunOptions& options, int local_rank) {
  const auto trace = options.trace.empty() ? nullptr : std::make_shared<dhp::Trace>();
  if constexpr (D::host_accessible)
    return D(
        {.threads = options.threads, .trace = trace, .waits = std::make_shared<dhp::WaitClock>()});
  else
    return D({.device = options.device + local_rank,
              .deterministic = options.deterministic,
              .tf32 = options.tf32,
              .library_dropout = options.library_dropout,
              .cublas_sms = options.cublas_sms,
              .trace = trace});
}

/// The world with observers of each of its calls: on the host of their time, and of what options ask for.
template <class D>
[[nodiscard]] dhp::Comm<D> observed(D& dev, dhp::Comm<D> world, const RunOptions& options) {
  if (world.size() == 1) return world;
  if constexpr (D::host_accessible)
    world = dhp::observe<D>(world, std::make_shared<dhp::CallTiming>(dev.waits()));
  if (options.check_collectives)
    world = dhp::observe<D>(world, std::make_shared<dhp::CallChecking<D>>(dev, world));
  if (dev.trace())
    world = dhp::observe<D>(world, std::make_shared<dhp::CallTracing<D>>(dev, world));
  return world;
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

/// How a rank that is a process runs, whatever carries its collectives.
struct ProcessSetup {
  const dhp::ProcessRank& me;
  const RunOptions& options;
  std::shared_ptr<const dhp::Deadlines> deadlines;
  FlightRecordOutput& records;

  void say(const std::string& message) const {
    std::fprintf(stderr, "rank %d: %s\n", me.rank, message.c_str());
  }
  /// Called when the world has ended, and this rank does not come back from its own work.
  void stuck(const std::string& message) const {
    say(message + "; this rank does not come back from its work, and is ended");
    records.write();
    std::_Exit(1);
  }
};

#if (defined(DHP_HAS_NCCL) && defined(DHP_HAS_PROCESSES)) || defined(DHP_HAS_GLOO)
/// Refers to the setup.
[[nodiscard]] inline dhp::ProcessOptions process_options(const ProcessSetup& setup) {
  dhp::ProcessOptions made;
  if (setup.options.comm_timeout) made.timeout_s = *setup.options.comm_timeout;
  made.deadlines = setup.deadlines;
  made.recorder = setup.records.of(setup.me.rank);
  made.network_interface = setup.options.network_interface;
  made.log = [&setup](const std::string& message) { setup.say(message); };
  made.stuck = [&setup](const std::string& message) { setup.stuck(message); };
  return made;
}
#endif

#if defined(DHP_HAS_MPI) && !defined(DHP_HAS_NCCL)
/// Whether MPI carried the ranks; if not, another engine has to.
template <class Body>
[[nodiscard]] bool run_over_mpi(const ProcessSetup& setup, const Body& body) {
  const bool asked_for = setup.options.transport == "mpi";
  if (!asked_for && !started_for_mpi(setup.me)) return false;
  const MpiProcess mpi;
  if (MpiProcess::size() != setup.me.size) {
    dhp::check(!asked_for, "MPI has started ", MpiProcess::size(), " ranks, but ",
               setup.me.launcher, " ", setup.me.size,
               "; srun needs --mpi=pmix for MPI to connect them, or use "
               "--transport gloo");
    if (setup.me.rank == 0)
      setup.say(
          "MPI does not connect the processes of this launcher (srun needs --mpi=pmix); Gloo does");
    return false;
  }
  dhp::MpiSessionOptions session;
  if (setup.options.comm_timeout) session.timeout_s = *setup.options.comm_timeout;
  session.deadlines = setup.deadlines;
  session.recorder = setup.records.of(setup.me.rank);
  session.stuck = [&](const std::string& message) { setup.stuck(message); };
  dhp::MpiSession(MPI_COMM_WORLD, session).run(body);
  return true;
}
#else
template <class Body>
[[nodiscard]] bool run_over_mpi(const ProcessSetup& setup, const Body&) {
  if (setup.options.transport == "mpi")
    dhp::fail(
        "this program was built without MPI (in Debian libopenmpi-dev); --transport gloo needs "
        "none");
  return false;
}
#endif

template <class D, class Body>
void start_rank(const dhp::ProcessRank& me, const RunOptions& options,
                std::shared_ptr<const dhp::Deadlines> deadlines, Body body) {
  FlightRecordOutput records(options.flight_record, me.rank, 1, me.size);
  const ProcessSetup setup{me, options, std::move(deadlines), records};
  if constexpr (D::host_accessible)
    if (run_over_mpi(setup, body)) return;
#if (defined(DHP_HAS_NCCL) && defined(DHP_HAS_PROCESSES)) || defined(DHP_HAS_GLOO)
  const auto process = process_options(setup);
#if defined(DHP_HAS_NCCL)
  dhp::run_process_rank(me, dhp::connect_nccl, body, process);
#else
  if constexpr (D::host_accessible) dhp::run_process_rank(me, dhp::connect_gloo, body, process);
  else fail_without("NCCL");
#endif
#else
  fail_without("Gloo and OpenSSL, in Debian libgloo-dev and libssl-dev");
#endif
}

#if (defined(DHP_HAS_NCCL) && defined(DHP_HAS_PROCESSES)) || defined(DHP_HAS_GLOO)
/// body(GenerationRank<D>&) in each generation of an elastic job that this process is a member of. gives_up: whether it
/// no longer wants to be taken in.
template <class D, class Body>
void start_elastic_rank(const dhp::ProcessRank& me, const RunOptions& options,
                        std::shared_ptr<const dhp::Deadlines> deadlines,
                        std::function<bool()> gives_up, Body body) {
  dhp::check(options.transport != "mpi",
             "--elastic does without MPI, which ends the whole job when a rank is lost; leave "
             "--transport out, or choose gloo on CPUs");
  FlightRecordOutput records(options.flight_record, me.rank, 1, me.size);
  const ProcessSetup setup{me, options, std::move(deadlines), records};
  auto process = process_options(setup);
  process.stuck_after_s = 60;  // it may be in the midst of a long step, after which it goes on
  auto elastic = *options.elastic;
  elastic.tensor = options.mesh.tensor;
  elastic.pipeline = options.mesh.pipeline;
  elastic.gives_up = std::move(gives_up);
  const auto id = dhp::new_member_id();
  auto store = options.store.empty()
                   ? dhp::meet_elastic(me, id, process)
                   : elastic_store(options.store, dhp::rendezvous_of_member(me, id, process));
#if defined(DHP_HAS_NCCL)
  const auto connect = dhp::connect_nccl;
#else
  const auto connect = dhp::connect_gloo;
#endif
  dhp::run_elastic<D>(std::move(store), me, id, connect, body, process, elastic);
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
  const int ranks = options.mesh.size();
  FlightRecordOutput records(options.flight_record, 0, ranks, ranks);
  dhp::run_ranks<D>(ranks,
                    [&](dhp::Comm<D> world) {
                      const int rank = world.rank();
                      body(std::move(world), rank, rank == 0 ? deadlines.get() : nullptr);
                    },
                    {.deadlines = deadlines, .recorders = records.all()});
}

}  // namespace examples
