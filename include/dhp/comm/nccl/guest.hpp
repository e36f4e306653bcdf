// nccl_world of a host program's communicator. dhp makes a communicator of its own of the same ranks, as libraries
// over MPI do with MPI_Comm_dup, and uses the host's for nothing else: neither has to fit into the order of the
// other's collectives, and what dhp ends when a rank is gone, or when it is asked to abort, is dhp's.
#pragma once

#include <dhp/comm/nccl.hpp>

#include <memory>
#include <utility>

namespace dhp {

namespace detail {

/// A new communicator of the ranks of `hosts`; collective.
[[nodiscard]] inline ncclComm_t copy_of(ncclComm_t hosts, WatchedWorld& world, int rank, int ctas,
                                        CallSite where) {
  const NcclOperation operation{"the copy of a communicator", where};
  auto config = NcclChannel::config_of(ctas);
  auto made = std::make_unique<ncclComm_t>(nullptr);
  auto code = ncclCommSplit(hosts, 0, rank, made.get(), &config);
  try {
    world.wait_until(
        [&] {
          if (code == ncclInProgress)
            check_nccl(ncclCommGetAsyncError(hosts, &code), "NCCL", where);
          return code != ncclInProgress;
        },
        [&] {
          return concat("rank ", rank, " waits in ", operation, " for the ranks of its group");
        });
  } catch (...) {
    // Not freed: NCCL may write there as long as the host's communicator lives.
    static_cast<void>(made.release());
    throw;
  }
  if (code == ncclSuccess) return *made;
  const auto text = concat("rank ", rank, ", ", operation, ": NCCL says: ", nccl_says(code));
  world.abort(text);
  throw Error(text, where);
}

}  // namespace detail

/// For several ranks in one process, which share `world`; else as below.
[[nodiscard]] inline NcclComm nccl_world(std::shared_ptr<WatchedWorld> world, ncclComm_t hosts,
                                         NcclOptions options = {},
                                         CallSite where = CallSite::current()) {
  NcclChannel::Place place{};
  check_nccl(ncclCommCuDevice(hosts, &place.device), "ncclCommCuDevice", where);
  check_nccl(ncclCommUserRank(hosts, &place.rank), "ncclCommUserRank", where);
  check_nccl(ncclCommCount(hosts, &place.size), "ncclCommCount", where);
  place.world_rank = place.rank;
  check_cuda(cudaSetDevice(place.device), "cudaSetDevice");
  auto* const copy = detail::copy_of(hosts, *world, place.rank, options.collective_ctas, where);
  return NcclComm(std::make_shared<NcclChannel>(std::move(world), place, copy), options);
}

/// The ranks of a host program's communicator, on its GPU, which becomes the thread's current one. Collective over
/// them. Meanwhile nothing else may be under way on `hosts`; afterwards it is not used any more, and may be
/// destroyed. Where `hosts` is blocking, this waits for a missing rank as long as it does, else for the time limit.
[[nodiscard]] inline NcclComm nccl_world(ncclComm_t hosts, NcclOptions options = {},
                                         CallSite where = CallSite::current()) {
  return nccl_world(
      std::make_shared<WatchedWorld>(WatchedWorld::Options{.timeout_s = options.timeout_s}), hosts,
      options, where);
}

}  // namespace dhp
