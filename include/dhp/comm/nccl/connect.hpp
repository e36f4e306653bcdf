// connect_nccl connects the processes of a world over NCCL, one GPU each.
#pragma once

#include <dhp/comm/launch_process.hpp>
#include <dhp/comm/nccl/launch.hpp>

#include <cstring>
#include <memory>
#include <string>

namespace dhp {

namespace detail {
inline void check_local_gpu(const ProcessRank& me) {
  const int gpus = usable_gpus();
  check(me.local_rank >= 0 && me.local_rank < gpus, "rank ", me.rank, " is local rank ",
        me.local_rank, ", but this process sees ", gpus,
        " GPUs; start as many ranks as GPUs on a machine");
}
}  // namespace detail

/// Connects this rank to its job over NCCL; an argument of run_process_rank. The rank uses the GPU with the number of
/// its local rank: the body makes its device by CudaOptions{.device = me.local_rank}. Collective.
[[nodiscard]] inline Comm<Cuda> connect_nccl(const std::shared_ptr<ProcessWatchdog>& watchdog,
                                             const ProcessRank& me, const ProcessOptions&) {
  if (me.size > 1) detail::prepare_process_for_nccl();
  detail::check_local_gpu(me);
  const std::string key = "nccl/id";
  ncclUniqueId id{};
  if (me.rank == 0) {
    id = detail::new_nccl_id();
    watchdog->store().set(key, std::string(id.internal, sizeof id.internal));
  } else {
    const auto bytes = watchdog->get(key);
    check(bytes.size() == sizeof id.internal, "\"", key, "\" in the ",
          watchdog->store().description(), " has ", bytes.size(),
          " bytes and is no id of NCCL; do all ranks run the same program?");
    std::memcpy(id.internal, bytes.data(), bytes.size());
  }
  auto result = Comm<Cuda>::of(detail::NcclComm(watchdog, me.local_rank, me.rank, me.size, id));
  if (me.rank == 0) watchdog->store().remove(key);  // all ranks have read it
  return result;
}

}  // namespace dhp
