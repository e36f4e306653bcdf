// Ranks on fake GPUs (fake_nccl.hpp).
#pragma once

#include <tests/cuda/fake_nccl.hpp>
// The fake comes first, because the headers below call it.
#include <dhp/comm/nccl/launch.hpp>
#include <tests/comm/nccl/checks.hpp>

namespace tests {

/// Calls body(world, dev) on n ranks; returns their results.
[[nodiscard]] std::vector<std::string> on_gpus(int n, auto body,
                                               const WatchOptions& options = {.timeout_s = 60}) {
  std::vector<std::string> results(static_cast<std::size_t>(n));
  const auto id = dhp::detail::new_nccl_id();
  const auto shared = std::make_shared<Watchdog>(n, options);
  dhp::detail::run_rank_threads(
      *shared, n,
      [&](int rank) {
        Cuda dev({.device = rank, .pinned_bytes = 1 << 20, .workspace_bytes = 256});
        auto world = Comm<Cuda>::of(detail::NcclComm(shared, rank, rank, n, id));
        results[static_cast<std::size_t>(rank)] = body(world, dev);
      },
      CallSite::current());
  return results;
}
/// Runs the ranks by run_ranks with a time limit; returns its error message.
[[nodiscard]] std::string end_of(int n, double timeout_s, auto body) {
  return message_of([&] {
    run_ranks<Cuda>(
        n,
        [&](Comm<Cuda> world) {
          Cuda dev({.device = world.rank(), .pinned_bytes = 1 << 20, .workspace_bytes = 256});
          body(world, dev);
        },
        {.timeout_s = timeout_s});
  });
}

}  // namespace tests
