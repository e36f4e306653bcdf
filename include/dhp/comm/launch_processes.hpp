// This process as one rank of a world of processes, which something outside has started: who it is comes from
// the environment, and how to find the others from a folder that all of them see.
#pragma once

#include <dhp/comm/launch_nccl.hpp>
#include <dhp/comm/shared_folder.hpp>

#include <charconv>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dhp {

/// From the variables RANK, WORLD_SIZE, LOCAL_RANK (among the ranks of this machine; 0 where there is none),
/// DHP_RENDEZVOUS (a folder) and DHP_JOB (differs from start to start; not needed where the folder does).
struct ProcessRank {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  std::string folder{};
  std::string job = "job";

  /// None where RANK and WORLD_SIZE are both unset. Throws where they make no sense.
  [[nodiscard]] static std::optional<ProcessRank> from_environment() {
    const char* const rank = std::getenv("RANK");
    const char* const size = std::getenv("WORLD_SIZE");
    if (rank == nullptr && size == nullptr) return std::nullopt;
    check(rank != nullptr && size != nullptr,
          "RANK and WORLD_SIZE belong together, but only one of them is set");
    ProcessRank me;
    me.rank = number("RANK", rank);
    me.size = number("WORLD_SIZE", size);
    check(me.size >= 1 && me.rank >= 0 && me.rank < me.size, "RANK is ", me.rank,
          " and WORLD_SIZE is ", me.size, "; ranks count from 0 to WORLD_SIZE - 1");
    if (const char* const local = std::getenv("LOCAL_RANK"))
      me.local_rank = number("LOCAL_RANK", local);
    const char* const folder = std::getenv("DHP_RENDEZVOUS");
    check(folder != nullptr || me.size == 1, "WORLD_SIZE is ", me.size,
          ", but DHP_RENDEZVOUS names no folder for the ranks to meet in");
    if (folder != nullptr) me.folder = folder;
    if (const char* const job = std::getenv("DHP_JOB")) me.job = job;
    return me;
  }

 private:
  static int number(const char* name, std::string_view text) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    check(error == std::errc() && end == text.data() + text.size(), name, " is \"", text,
          "\", not a whole number");
    return value;
  }
};

/// The world of all processes, for this one: collective. GPU LOCAL_RANK is this rank's.
[[nodiscard]] inline NcclComm nccl_world(const ProcessRank& me, NcclOptions options = {},
                                         CallSite where = CallSite::current()) {
  const int gpus = usable_gpus();
  check(me.local_rank >= 0 && me.local_rank < gpus, "LOCAL_RANK is ", me.local_rank,
        ", but this process sees ", gpus, " GPUs; start as many ranks as GPUs on a machine");
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
