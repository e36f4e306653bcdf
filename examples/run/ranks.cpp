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
#include <dhp/comm/rendezvous/address.hpp>
#include <dhp/core/on_signal.hpp>
#include <dhp/core/system_error.hpp>

#include "../options/agreement.hpp"
#include "../report/flight_record_file.hpp"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace examples {
namespace {

using Dev = dhp::DefaultDevice;

constexpr double soon_s = 5;
#if defined(DHP_HAS_ENGINE) && defined(DHP_HAS_NCCL)
constexpr auto connect_engine = dhp::connect_nccl;
#elif defined(DHP_HAS_ENGINE)
constexpr auto connect_engine = dhp::connect_gloo;
#endif

/// The files of --flight-record with the last calls of this process's ranks. They are written when the run ends, even
/// by an error, and whenever the process gets SIGUSR1, even if it hangs.
class FlightRecordOutput : dhp::detail::NonCopyable {
 public:
  /// file: the value of --flight-record; if it is empty, nothing is written and the signal keeps its default action.
  /// Records `ranks` ranks, from rank `first` on, of a world of world_size. Construct it before other threads start.
  FlightRecordOutput(const std::string& file, int first, int ranks, int world_size)
      : first_(first), world_size_(world_size), recorders_(static_cast<std::size_t>(ranks)) {
    for (auto& recorder : recorders_) recorder = std::make_shared<dhp::FlightRecorder>();
    if (file.empty()) return;
    for (int rank = first; rank < first + ranks; ++rank) {
      paths_.push_back(flight_record_path(file, rank));
      const auto folder = std::filesystem::path(paths_.back()).parent_path().string();
      dhp::detail::check_system(::access(folder.empty() ? "." : folder.c_str(), W_OK) == 0,
                                "cannot write --flight-record ", paths_.back());
      // A record of an earlier run would mislead, and a hanging rank may be unable to replace it.
      ::unlink(paths_.back().c_str());
    }
    signal_.emplace(std::vector{SIGUSR1}, [this](int) { write(); });
  }
  ~FlightRecordOutput() {
    signal_.reset();
    write();
  }

  [[nodiscard]] const std::shared_ptr<dhp::FlightRecorder>& of(int rank) const {
    return recorders_.at(static_cast<std::size_t>(rank - first_));
  }
  [[nodiscard]] const std::vector<std::shared_ptr<dhp::FlightRecorder>>& all() const {
    return recorders_;
  }
  /// Any thread may call this.
  void write() noexcept {
    const std::lock_guard lock(mutex_);
    for (std::size_t at = 0; at < paths_.size(); ++at) {
      const int rank = first_ + static_cast<int>(at);
      try {
        FlightRecordFile::of(*recorders_[at], rank, world_size_, dhp::detail::process_name())
            .write(paths_[at]);
      } catch (const std::exception& error) {  // a failed write must not end a run
        std::fprintf(stderr, "rank %d: %s\n", rank, dhp::detail::sentence_of(error).c_str());
      }
    }
  }

 private:
  int first_;
  int world_size_;
  std::vector<std::shared_ptr<dhp::FlightRecorder>> recorders_;
  std::vector<std::string> paths_;  // one for each recorder, or none
  std::mutex mutex_;
  std::optional<dhp::detail::OnSignal> signal_;
};

/// The setup of a rank that is a process, for any transport.
struct ProcessSetup {
  const dhp::ProcessRank& me;
  const RunOptions& options;
  std::shared_ptr<const dhp::Deadlines> deadlines;
  FlightRecordOutput& records;

  void log(const std::string& message) const {
    std::fprintf(stderr, "rank %d: %s\n", me.rank, message.c_str());
  }
  /// Ends the process; called when the world has ended but this rank does not return from its own work.
  void stuck(const std::string& message) const {
    log(message + "; this rank does not return from its work and is ended");
    records.write();
    std::_Exit(1);
  }
  /// Returns options with the fields that all engines share. The result refers to this setup.
  template <class Options>
  [[nodiscard]] Options shared_by_engines() const {
    Options result;
    if (options.comm_timeout) result.timeout_s = *options.comm_timeout;
    result.deadlines = deadlines;
    result.recorder = records.of(me.rank);
    result.stuck = [this](const std::string& message) { stuck(message); };
    return result;
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
  auto result = setup.shared_by_engines<dhp::ProcessOptions>();
  result.network_interface = setup.options.network_interface;
  result.log = [&setup](const std::string& message) { setup.log(message); };
  return result;
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
    dhp::check(!asked_for, "MPI has started ", dhp::detail::pluralize(MpiProcess::size(), "rank"),
               ", but ", setup.me.launcher, " ", setup.me.size,
               "; srun needs --mpi=pmix for MPI to connect them, or use "
               "--transport gloo");
    if (setup.me.rank == 0)
      setup.log(
          "MPI does not connect the processes of this launcher (srun needs --mpi=pmix); Gloo does");
    return false;
  }
  dhp::MpiSession(MPI_COMM_WORLD, setup.shared_by_engines<dhp::MpiSessionOptions>()).run(body);
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
  dhp::run_process_rank(me, connect_engine, body, process_options(setup));
#else
  dhp::fail(
      "this program was built without communication between processes (Gloo and OpenSSL, in Debian "
      "libgloo-dev and libssl-dev); start it without a launcher, and its ranks are threads");
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
      if (options.prints())
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
  auto store = options.etcd.empty()
                   ? dhp::rendezvous_elastic(me, id, process)
                   : store_in_etcd(options.etcd, dhp::rendezvous_of_member(me, id, process));
  dhp::run_elastic<Dev>(std::move(store), me, id, connect_engine, body, process, elastic);
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
    const auto layout_mismatch = options.layout_mismatch(*me);
    auto meeting = options;
    if (!layout_mismatch.empty())
      meeting.comm_timeout =
          options.comm_timeout.value_or(0) > 0 ? std::min(*options.comm_timeout, soon_s) : soon_s;
    bool met = false;
    try {
      return start_rank(*me, meeting, deadlines, [&](dhp::Comm<Dev> world) {
        met = true;
        auto dev = make_device<Dev>(options, me->local_rank);
        // dhp_doctor compares no options ("{}"), since it examines collectives that may not work.
        if (options.common != "{}") check_same(dev, world, options_in_common(options));
        dhp::check(layout_mismatch.empty(), layout_mismatch);
        body(dev, std::move(world), deadlines.get());
      });
    } catch (const dhp::Error&) {
      if (met || layout_mismatch.empty()) throw;
    }
    dhp::fail(layout_mismatch);
  }
  const int ranks = options.layout.size();
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
