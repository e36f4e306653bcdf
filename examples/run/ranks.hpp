// Starts a program's ranks as threads, or makes the process one of the ranks, and chooses each rank's device.
#pragma once

#include <dhp/comm/observe/check.hpp>
#include <dhp/comm/observe/time.hpp>
#include <dhp/comm/observe/trace.hpp>
#include <dhp/default_device.hpp>
#include <dhp/watch.hpp>
#ifdef DHP_HAS_ENGINE
#include <dhp/comm/elastic/run_elastic.hpp>
#endif

#include "../options/options.hpp"

#include <functional>
#include <memory>

namespace examples {

/// Returns this rank's device. Ranks on GPUs have one GPU each, numbered from --device.
template <class D>
[[nodiscard]] D make_device(const RunOptions& options, int local_rank) {
  const auto trace = options.trace.empty() ? nullptr : std::make_shared<dhp::Trace>();
  if constexpr (D::host_accessible)
    return D(
        {.threads = options.threads, .trace = trace, .waits = std::make_shared<dhp::WaitClock>()});
  else
    return D({.device = options.device + local_rank,
              .deterministic = options.store.deterministic,
              .tf32 = options.tf32,
              .library_dropout = options.library_dropout,
              .cublas_sms = options.cublas_sms,
              .trace = trace});
}

/// Returns the world with observers of its calls: a timer on the host, and those that options ask for.
template <class D>
[[nodiscard]] dhp::Comm<D> observed(D& dev, dhp::Comm<D> world, const RunOptions& options) {
  if (world.size() == 1) return world;
  if constexpr (D::host_accessible)
    world = dhp::observe<D>(world, std::make_shared<dhp::detail::CallTiming>(dev.waits()));
  if (options.check_collectives)
    world = dhp::observe<D>(world, std::make_shared<dhp::CallChecking<D>>(dev, world));
  if (dev.trace())
    world = dhp::observe<D>(world, std::make_shared<dhp::CallTracing<D>>(dev, world));
  return world;
}

/// Returns the deadlines, learned unless the user sets them.
[[nodiscard]] inline std::shared_ptr<dhp::Deadlines> deadlines_of(const RunOptions& options) {
  if (options.comm_timeout) return std::make_shared<dhp::Deadlines>(*options.comm_timeout);
  return std::make_shared<dhp::Deadlines>();
}

/// A rank's own work. deadlines: null if another rank of the process reports the run's progress.
using RankBody = std::function<void(dhp::DefaultDevice& dev, dhp::Comm<dhp::DefaultDevice> world,
                                    dhp::Deadlines* deadlines)>;

/// Runs body on every rank that this process starts: its own, or all of them as threads. A process whose options differ
/// from rank 0's is rejected before that.
void start_ranks(const RunOptions& options, const RankBody& body);

/// Call it if this process fails before it has connected to the others. If other ranks are there or come soon, they get
/// an error and need not wait for this process. Returns the exit status.
[[nodiscard]] int end_before_rendezvous(const RunOptions& options, int status);

#ifdef DHP_HAS_ENGINE
using GenerationBody =
    std::function<dhp::GenerationEnd(dhp::GenerationRank<dhp::DefaultDevice>& rank)>;

/// Runs body in each generation of an elastic job that this process belongs to.
void start_elastic_rank(const dhp::ProcessRank& me, const RunOptions& options,
                        std::shared_ptr<const dhp::Deadlines> deadlines,
                        const dhp::ElasticOptions& elastic, const GenerationBody& body);
#endif

}  // namespace examples
