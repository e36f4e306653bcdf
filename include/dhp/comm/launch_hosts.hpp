// connect_hosts: shared memory between the processes of one machine, on CPUs, and another transport between machines.
// connect_sockets (comm/launch_sockets.hpp) and connect_gloo (comm/launch_gloo.hpp) are this with theirs.
#pragma once

#include <dhp/comm/launch_process.hpp>
#include <dhp/comm/own_address.hpp>
#include <dhp/comm/peers.hpp>
#include <dhp/comm/shared_transport.hpp>

#include <memory>
#include <string>
#include <utility>

namespace dhp {

namespace detail {

/// Where this rank is reached by the others: at its interface, or what leads to rank 0, or from rank 0 to another
/// machine.
[[nodiscard]] inline std::string own_address(ProcessWorld& world, const ProcessRank& me,
                                             const ProcessOptions& options) {
  if (!options.network_interface.empty()) return address_of_interface(options.network_interface);
  if (me.folder.empty()) return address_towards(me.master);
  // "arrived/3" is "node7 4711".
  std::string first, other;
  for (const auto& [key, value] : world.store().list("arrived/")) {
    const auto host = value.substr(0, value.find(' '));
    if (key == "arrived/0") first = host;
    else if (host != host_name()) other = host;
  }
  if (first != host_name()) return address_towards(first);
  return other.empty() ? "127.0.0.1" : address_towards(other);
}

}  // namespace detail

/// far(address, joined) makes the transport between machines, to ranks that reach this one at that address: collective.
/// joined: ranks also wait in shared memory, and what they have begun between machines has to go on meanwhile.
template <class Far>
[[nodiscard]] Comm<Cpu> connect_hosts(const std::shared_ptr<ProcessWorld>& world,
                                      const ProcessRank& me, const ProcessOptions& options,
                                      Far far) {
  const auto shared =
      connect_shared(*world, {.domain = options.shared_memory ? memory_domain() : std::string()});
  if (!shared.refused.empty() && options.log)
    options.log(concat("memory is not shared with all ranks of this machine, which use sockets: ",
                       shared.refused));
  if (shared.all) return Comm<Cpu>::of(PeerComm(world, shared.transport));
  std::shared_ptr<PeerTransport> transport =
      far(detail::own_address(*world, me, options), shared.transport != nullptr);
  if (shared.transport)
    transport = std::make_shared<JoinedTransport>(shared.transport, std::move(transport));
  return Comm<Cpu>::of(PeerComm(world, std::move(transport)));
}

}  // namespace dhp
