// This process as one rank of a world of processes on GPUs, which something outside has started.
#pragma once

#include <dhp/comm/launch_nccl.hpp>
#include <dhp/comm/process_rank.hpp>
#include <dhp/comm/shared_folder.hpp>

#include <exception>
#include <memory>
#include <span>
#include <utility>

namespace dhp {

/// The world of all processes, for this one: collective. GPU LOCAL_RANK is this rank's.
[[nodiscard]] inline NcclComm nccl_world(const ProcessRank& me, NcclOptions options = {},
                                         CallSite where = CallSite::current()) {
  const int gpus = usable_gpus();
  check(me.local_rank >= 0 && me.local_rank < gpus, "LOCAL_RANK is ", me.local_rank,
        ", but this process sees ", gpus, " GPUs; start as many ranks as GPUs on a machine");
  check(!me.folder.empty(),
        "ranks on GPUs meet in a folder that all of them see; set DHP_RENDEZVOUS to its name");
  const SharedFolder folder(me.folder, me.job);
  ncclUniqueId id{};
  const auto bytes = std::as_writable_bytes(std::span(id.internal));
  if (me.rank == 0) {
    id = new_nccl_id();
    folder.put("nccl-id", bytes);
  } else {
    folder.get("nccl-id", bytes, options.timeout_s);
  }
  auto world =
      std::make_shared<WatchedWorld>(WatchedWorld::Options{.timeout_s = options.timeout_s});
  NcclComm made(std::move(world), me.local_rank, me.rank, me.size, id, options, where);
  if (me.rank == 0) folder.remove("nccl-id");  // all have read it
  return made;
}

/// body(world) in this process, as rank `me`. What it throws is left as it is, after the end of its collectives.
/// The body makes its device with CudaOptions{.device = me.local_rank}.
template <class Body>
void run_process_rank(const ProcessRank& me, Body body, RankOptions options = {},
                      CallSite where = CallSite::current()) {
  if (me.size == 1) {
    body(Comm<Cuda>());
    return;
  }
  prepare_process_for_nccl();
  auto world = nccl_world(me, {.timeout_s = options.timeout_s}, where);
  try {
    body(Comm<Cuda>::of(world));
  } catch (const std::exception& error) {
    world.abort(concat("rank ", me.rank, ": ", error.what()));
    throw;
  }
}

}  // namespace dhp
