// run_ranks with a time limit runs ranks as threads of this process under a watchdog. A late rank ends the world; the
// error names that rank and the call that waits for it. Flight recorders keep the calls of all ranks.
#pragma once

#include <dhp/comm/launch.hpp>
#include <dhp/comm/observe/record.hpp>

#include <memory>
#include <type_traits>

namespace dhp {

template <class Dev = Cpu, class Body>
void run_ranks(int ranks, Body body, const WatchOptions& options,
               CallSite where = CallSite::current()) {
  if constexpr (requires { detail::RankLauncher<Dev>::run(ranks, body, where, options); }) {
    if (ranks > 1) return detail::RankLauncher<Dev>::run(ranks, std::ref(body), where, options);
  } else if constexpr (std::is_same_v<Dev, Cpu>) {
    if (ranks > 1) {
      const auto watchdog = std::make_shared<Watchdog>(ranks, options);
      const auto comms = detail::ThreadComm::all_of(watchdog, ranks);
      const auto one = [&](int rank) {
        body(detail::recorded(*watchdog, comms[detail::as_size(rank)]));
      };
      return detail::run_rank_threads(*watchdog, ranks, one, where);
    }
  }
  run_ranks<Dev>(ranks, body, where);
}

}  // namespace dhp
