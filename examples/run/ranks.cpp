#include "ranks.hpp"

#if defined(DHP_HAS_ENGINE) && defined(DHP_HAS_NCCL)
#include <dhp/comm/nccl/connect.hpp>
#elif defined(DHP_HAS_ENGINE)
#include <dhp/comm/gloo/connect.hpp>
#endif
#if defined(DHP_HAS_MPI) && !defined(DHP_HAS_NCCL)
#include <dhp/comm/mpi/session.hpp>
#endif
#if defined(DHP_HAS_ETCD)
#include <dhp/comm/rendezvous/etcd_store.hpp>
#endif

#include "../options/agreement.hpp"
#include "../report/flight_records.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

namespace examples {
namespace {

using Dev = dhp::DefaultDevice;

constexpr double soon_s = 5;

[[noreturn, maybe_unused]] void fail_without(const char* needed) {
  dhp::fail("this program was built without communication between processes (", needed,
            "); start it without a launcher, and its ranks are threads");
}

/// The setup of a rank that is a process, for any transport.
struct ProcessSetup {
  const dhp::ProcessRank& me;
  const RunOptions& options;
  std::shared_ptr<const dhp::Deadlines> deadlines;
  FlightRecordOutput& records;

  void say(const std::string& message) const {
    std::fprintf(stderr, "rank %d: %s\n", me.rank, message.c_str());
  }
  /// Ends the process; called when the world has ended but this rank does not return from its own work.
  void stuck(const std::string& message) const {
    say(message + "; this rank does not return from its work and is ended");
    records.write();
    std::_Exit(1);
  }
};

#ifdef DHP_HAS_ENGINE
/// Opens the store of --store, through which members of an elastic job agree.
[[nodiscard]] std::shared_ptr<dhp::KeyValueStore> store_in_etcd(
    [[maybe_unused]] const std::string& endpoints,
    [[maybe_unused]] const dhp::RendezvousOptions& member) {
#if defined(DHP_HAS_ETCD)
  return std::make_shared<dhp::EtcdStore>(dhp::etcd_options(endpoints), member);
#else
  dhp::fail("--store needs a build with libcurl (in Debian libcurl4-openssl-dev)");
#endif
}

/// The result refers to the setup.
[[nodiscard]] dhp::ProcessOptions process_options(const ProcessSetup& setup) {
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
/// Returns whether MPI can be initialized in this process. MPI can connect processes of srun only if srun offers PMIx
/// or PMI. Otherwise some MPIs end the processes, and others give each a world of one.
[[nodiscard]] bool started_for_mpi(const dhp::ProcessRank& me) {
  if (me.launcher == "Open MPI" || me.launcher == "MPICH") return true;
  return me.launcher == "Slurm" &&
         (std::getenv("PMIX_RANK") != nullptr || std::getenv("PMI_RANK") != nullptr);
}

/// Keeps MPI initialized while the program runs.
class MpiProcess : dhp::detail::NonCopyable {
 public:
  MpiProcess() {
    int level = MPI_THREAD_SINGLE;
    dhp::check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level),
                   "MPI_Init_thread");
  }
  /// After a failure other ranks may never reach MPI_Finalize, so the launcher ends the job.
  ~MpiProcess() {
    if (std::uncaught_exceptions() > 0) return;
    MPI_Finalize();
  }
  [[nodiscard]] static int size() {
    int size = 0;
    dhp::check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
    return size;
  }
};

/// Runs body over MPI if options and launcher allow it. Returns whether it did; if not, another transport must.
[[nodiscard]] bool run_over_mpi(const ProcessSetup& setup, const auto& body) {
  const auto& transport = setup.options.transport;
  const bool asked_for = transport == "mpi";
  if (!asked_for && (transport == "gloo" || !started_for_mpi(setup.me))) return false;
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
[[nodiscard]] bool run_over_mpi(const ProcessSetup& setup, const auto&) {
  if (setup.options.transport == "mpi")
    dhp::fail(
        "this program was built without MPI (in Debian libopenmpi-dev); --transport gloo needs "
        "none");
  return false;
}
#endif

void start_rank(const dhp::ProcessRank& me, const RunOptions& options,
                std::shared_ptr<const dhp::Deadlines> deadlines, auto body) {
  FlightRecordOutput records(options.flight_record, me.rank, 1, me.size);
  const ProcessSetup setup{me, options, std::move(deadlines), records};
  if constexpr (Dev::host_accessible)
    if (run_over_mpi(setup, body)) return;
#ifdef DHP_HAS_ENGINE
  const auto process = process_options(setup);
#if defined(DHP_HAS_NCCL)
  dhp::run_process_rank(me, dhp::connect_nccl, body, process);
#else
  if constexpr (Dev::host_accessible) dhp::run_process_rank(me, dhp::connect_gloo, body, process);
  else fail_without("NCCL");
#endif
#else
  fail_without("Gloo and OpenSSL, in Debian libgloo-dev and libssl-dev");
#endif
}

/// Initializes CUDA on this process's first GPU and prints the cost. Ignores errors: the GPU's rank reports them later.
template <class D>
void begin_with_gpu(const RunOptions& options, int local_rank, [[maybe_unused]] int ranks) {
  if constexpr (requires { D::begin(local_rank); }) {
#if defined(DHP_HAS_ENGINE) && defined(DHP_HAS_NCCL)
    if (ranks > 1) dhp::detail::prepare_process_for_nccl();
#endif
    try {
      const auto start = D::begin(options.device + local_rank);
      if (options.speaks())
        std::fprintf(stderr, "CUDA began in %.1f s with %.2f GB of the GPU's memory in use\n",
                     start.seconds, static_cast<double>(start.used_bytes) / 1e9);
    } catch (const dhp::Error&) {}
  }
}

}  // namespace

#ifdef DHP_HAS_ENGINE
void start_elastic_rank(const dhp::ProcessRank& me, const RunOptions& options,
                        std::shared_ptr<const dhp::Deadlines> deadlines,
                        const dhp::ElasticOptions& elastic, const GenerationBody& body) {
  dhp::check(options.transport != "mpi",
             "--elastic does not work with MPI, which ends the whole job when a rank is lost; "
             "leave --transport out, or choose gloo on CPUs");
  FlightRecordOutput records(options.flight_record, me.rank, 1, me.size);
  const ProcessSetup setup{me, options, std::move(deadlines), records};
  auto process = process_options(setup);
  process.stuck_after_s = 60;  // a rank may be in the middle of a long step
  const auto id = dhp::new_member_id();
  auto store = options.store.empty()
                   ? dhp::rendezvous_elastic(me, id, process)
                   : store_in_etcd(options.store, dhp::rendezvous_of_member(me, id, process));
#if defined(DHP_HAS_NCCL)
  const auto connect = dhp::connect_nccl;
#else
  const auto connect = dhp::connect_gloo;
#endif
  dhp::run_elastic<Dev>(std::move(store), me, id, connect, body, process, elastic);
}
#endif

int end_before_rendezvous(const RunOptions& options, int status) {
  if (status == 0) return status;
  try {
    RunOptions meeting;  // keeps only what connecting needs, since the options are wrong
    meeting.comm_timeout = soon_s;
    meeting.transport = options.transport;
    meeting.network_interface = options.network_interface;
    const auto me = options.elastic ? std::nullopt : options.process();
    if (me)
      start_rank(*me, meeting, deadlines_of(meeting), [](const dhp::Comm<Dev>&) {
        dhp::fail("its command line is wrong; see what that rank printed");
      });
  } catch (const std::exception&) {  // the error has been reported
  }
  return status;
}

void start_ranks(const RunOptions& options, const RankBody& body) {
  const auto deadlines = deadlines_of(options);
  if (const auto me = options.process()) {
    begin_with_gpu<Dev>(options, me->local_rank, me->size);
    // If the layout does not fit, other ranks may have another one, or be missing. This rank then waits only briefly.
    const auto misfit = options.misfit(*me);
    auto meeting = options;
    if (!misfit.empty())
      meeting.comm_timeout =
          options.comm_timeout.value_or(0) > 0 ? std::min(*options.comm_timeout, soon_s) : soon_s;
    bool met = false;
    try {
      return start_rank(*me, meeting, deadlines, [&](dhp::Comm<Dev> world) {
        met = true;
        auto dev = make_device<Dev>(options, me->local_rank);
        // dhp_doctor compares no options ("{}"), since it examines collectives that may not work.
        if (options.common != "{}") check_same(dev, world, options_in_common(options));
        dhp::check(misfit.empty(), misfit);
        body(dev, std::move(world), deadlines.get());
      });
    } catch (const dhp::Error&) {
      if (met || misfit.empty()) throw;
    }
    dhp::fail(misfit);
  }
  const int ranks = options.mesh.size();
  begin_with_gpu<Dev>(options, 0, ranks);
  FlightRecordOutput records(options.flight_record, 0, ranks, ranks);
  dhp::run_ranks<Dev>(ranks,
                      [&](dhp::Comm<Dev> world) {
                        const int rank = world.rank();
                        auto dev = make_device<Dev>(options, rank);
                        body(dev, std::move(world), rank == 0 ? deadlines.get() : nullptr);
                      },
                      {.deadlines = deadlines, .recorders = records.all()});
}

}  // namespace examples
