// connect_sockets: shared memory between the processes of one machine, on CPUs, and TCP between machines.
#pragma once

#include <dhp/comm/launch_hosts.hpp>
#include <dhp/comm/sockets.hpp>

#include <memory>
#include <string>

namespace dhp {

/// For run_process_rank. Collective.
[[nodiscard]] inline Comm<Cpu> connect_sockets(const std::shared_ptr<ProcessWorld>& world,
                                               const ProcessRank& me,
                                               const ProcessOptions& options) {
  return connect_hosts(world, options, [&](const std::string& address, bool joined) {
    return std::make_shared<SocketTransport>(
        *world, SocketMeshOptions{.address = address, .job = me.job, .secret = job_secret()},
        SocketMessages::Options{.helped = joined});
  });
}

}  // namespace dhp
