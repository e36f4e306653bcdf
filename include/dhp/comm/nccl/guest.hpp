// nccl_world of a host program's communicator. dhp makes a communicator of its own of the same ranks, as libraries over
// MPI do with MPI_Comm_dup, and uses the host's for nothing else: neither has to fit into the order of the other's
// collectives, and what dhp ends when a rank is gone, or when it is asked to abort, is dhp's.
#pragma once

#include <dhp/comm/nccl/nccl_comm.hpp>

#include <memory>
#include <utility>

namespace dhp {

/// For several ranks in one process, which share `world`; else as below.
[[nodiscard]] inline Comm<Cuda> nccl_world(std::shared_ptr<World> world, ncclComm_t hosts,
                                           const NcclOptions& options = {},
                                           CallSite where = CallSite::current()) {
  comm::NcclChannel::Place place{};
  comm::check_nccl(ncclCommCuDevice(hosts, &place.device), "ncclCommCuDevice", where);
  comm::check_nccl(ncclCommUserRank(hosts, &place.rank), "ncclCommUserRank", where);
  comm::check_nccl(ncclCommCount(hosts, &place.size), "ncclCommCount", where);
  auto channel = std::make_shared<comm::NcclChannel>(std::move(world), place, hosts,
                                                     options.collective_ctas, where);
  return Comm<Cuda>::of(NcclComm(std::move(channel), options));
}

/// The ranks of a host program's communicator, on its GPU, which becomes the thread's current one. Collective over them.
/// Meanwhile nothing else may be under way on `hosts`; afterwards it is not used any more, and may be destroyed. Where
/// `hosts` is blocking, this waits for a missing rank as long as it does, else for the time limit.
[[nodiscard]] inline Comm<Cuda> nccl_world(ncclComm_t hosts, const NcclOptions& options = {},
                                           CallSite where = CallSite::current()) {
  auto world = std::make_shared<World>(1, World::Options{.timeout_s = options.timeout_s});
  return nccl_world(std::move(world), hosts, options, where);
}

}  // namespace dhp
