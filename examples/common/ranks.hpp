// How a program starts its ranks, or becomes one of them, and which device a rank has.
#pragma once

#include <dhp/comm/launch.hpp>
#if defined(DHP_HAS_NCCL) && defined(DHP_HAS_PROCESSES)
#include <dhp/comm/launch_nccl_process.hpp>
#elif defined(DHP_HAS_GLOO)
#include <dhp/comm/launch_gloo.hpp>
#endif

#include "options.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

namespace examples {

/// This rank's device. Ranks on GPUs have each their own, numbered from --device.
template <class D>
[[nodiscard]] D make_device(const RunOptions& options, int local_rank) {
  if constexpr (D::host_accessible) return D({.threads = options.threads});
  else return D({.device = options.device + local_rank, .deterministic = options.deterministic});
}

/// body(world) on the rank that this process is.
template <class D, class Body>
void start_rank(const dhp::ProcessRank& me, const RunOptions& options, Body body) {
  const auto say = [rank = me.rank](const std::string& message) {
    std::fprintf(stderr, "rank %d: %s\n", rank, message.c_str());
  };
  dhp::ProcessOptions process;
  process.timeout_s = options.comm_timeout;
  process.network_interface = options.network_interface;
  process.log = say;
  process.stuck = [say](const std::string& message) {
    say(message + "; this rank does not come back from its work, and is ended");
    std::_Exit(1);
  };
#if defined(DHP_HAS_NCCL) && defined(DHP_HAS_PROCESSES)
  dhp::run_process_rank(me, dhp::connect_nccl, body, process);
#elif defined(DHP_HAS_GLOO)
  dhp::run_process_rank(me, dhp::connect_gloo, body, process);
#else
  dhp::fail("this program was built without what processes need to talk to each other (",
            D::host_accessible ? "Gloo, in Debian libgloo-dev," : "NCCL",
            " and OpenSSL); start it plainly, and its ranks are threads");
#endif
}

/// body(world, local rank) on every rank that this process is to start: the one that it is, or all, as threads.
template <class D, class Body>
void start_ranks(const RunOptions& options, Body body) {
  if (const auto me = options.process()) {
    return start_rank<D>(*me, options,
                         [&](dhp::Comm<D> world) { body(std::move(world), me->local_rank); });
  }
  dhp::run_ranks<D>(options.mesh.size(),
                    [&](dhp::Comm<D> world) {
                      const int rank = world.rank();
                      body(std::move(world), rank);
                    },
                    {.timeout_s = options.comm_timeout});
}

}  // namespace examples
