// run_ranks<Cuda> runs ranks as threads of this process, one GPU each.
#pragma once

#include <dhp/comm/nccl/nccl_comm.hpp>
#include <dhp/comm/watch/launch.hpp>

#include <cstdlib>
#include <functional>
#include <memory>

namespace dhp::detail {
/// Sets CUDA's environment for several communicators, unless the user has set it: 32 hardware queues, and eager loading
/// of kernels, because lazy loading may deadlock. Call this before any use of CUDA, while the process has one thread.
inline void prepare_process_for_nccl() {
  constexpr int keep = 0;
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", keep);
  ::setenv("CUDA_MODULE_LOADING", "EAGER", keep);
}

/// The body makes its rank's device by CudaOptions{.device = world.rank()}. There is always a watchdog.
template <>
class RankLauncher<Cuda> {
 public:
  using Body = std::function<void(Comm<Cuda>)>;
  static void run(int ranks, const Body& body, CallSite where, const WatchOptions& options = {}) {
    prepare_process_for_nccl();
    const int gpus = usable_gpus();
    check(gpus >= ranks, "a world of ", detail::pluralize(ranks, "rank"),
          " needs as many GPUs, this process sees ", gpus,
          "; see CUDA_VISIBLE_DEVICES, or start fewer ranks");
    const auto watchdog = std::make_shared<Watchdog>(ranks, options);
    const auto id = new_nccl_id();
    run_rank_threads(
        *watchdog, ranks,
        [&](int rank) {
          body(Comm<Cuda>::of(NcclComm(watchdog, rank, rank, ranks, id, {}, where)));
        },
        where);
  }
};
}  // namespace dhp::detail
