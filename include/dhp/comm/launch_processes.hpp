// This process as one rank of a world of processes on GPUs, which something outside has started.
#pragma once

#include <dhp/comm/job_secret.hpp>
#include <dhp/comm/launch_nccl.hpp>
#include <dhp/comm/process_rank.hpp>
#include <dhp/comm/rendezvous.hpp>

#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <utility>

namespace dhp {

inline void check_local_gpu(const ProcessRank& me) {
  const int gpus = usable_gpus();
  check(me.local_rank >= 0 && me.local_rank < gpus, "LOCAL_RANK is ", me.local_rank,
        ", but this process sees ", gpus, " GPUs; start as many ranks as GPUs on a machine");
}

/// How a rank meets the others.
[[nodiscard]] inline RendezvousOptions rendezvous_of(const ProcessRank& me, double timeout_s) {
  return {.rank = me.rank,
          .size = me.size,
          .folder = me.folder,
          .job = me.job,
          .secret = job_secret(),
          .timeout_s = timeout_s > 0 ? timeout_s : 1e8};
}

/// The world of all processes, for this one: collective. GPU LOCAL_RANK is this rank's. The key differs from world to
/// world of one store.
[[nodiscard]] inline NcclComm nccl_world(const ProcessRank& me, Store& store,
                                         NcclOptions options = {},
                                         const std::string& key = "nccl-id",
                                         CallSite where = CallSite::current()) {
  check_local_gpu(me);
  ncclUniqueId id{};
  if (me.rank == 0) {
    id = new_nccl_id();
    store.set(key, std::string(id.internal, sizeof id.internal));
  } else {
    const auto bytes = store.get(key, options.timeout_s > 0 ? options.timeout_s : 1e8);
    check(bytes.size() == sizeof id.internal, "\"", key, "\" in the ", store.description(), " has ",
          bytes.size(), " bytes and is no id of NCCL; do all ranks run the same program?");
    std::memcpy(id.internal, bytes.data(), bytes.size());
  }
  auto world =
      std::make_shared<WatchedWorld>(WatchedWorld::Options{.timeout_s = options.timeout_s});
  NcclComm made(std::move(world), me.local_rank, me.rank, me.size, id, options, where);
  if (me.rank == 0) store.remove(key);  // all have read it
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
  check_local_gpu(me);
  const auto store = meet(rendezvous_of(me, options.timeout_s));
  auto world = nccl_world(me, *store, {.timeout_s = options.timeout_s}, "nccl-id", where);
  try {
    body(Comm<Cuda>::of(world));
  } catch (const std::exception& error) {
    world.abort(concat("rank ", me.rank, ": ", error.what()));
    throw;
  }
  constexpr double patience_s = 10;  // the others have nothing to do any more, either
  (void)leave(*store, me.rank, me.size, patience_s);
}

}  // namespace dhp
