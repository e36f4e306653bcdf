// connect_gloo: as connect_sockets, with Gloo between machines. Needs Gloo.
#pragma once

#include <dhp/comm/gloo.hpp>
#include <dhp/comm/launch_hosts.hpp>

#include <memory>
#include <string>

namespace dhp {

/// For run_process_rank. Collective.
[[nodiscard]] inline Comm<Cpu> connect_gloo(const std::shared_ptr<ProcessWorld>& world,
                                            const ProcessRank&, const ProcessOptions& options) {
  return connect_hosts(world, options, [&](const std::string& address, bool) {
    return std::make_shared<GlooTransport>(*world, GlooOptions{.address = address});
  });
}

}  // namespace dhp
