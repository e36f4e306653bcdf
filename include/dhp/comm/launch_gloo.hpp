// connect_gloo: Gloo between the processes of a world, on CPUs, but shared memory between those of one machine.
#pragma once

#include <dhp/comm/gloo.hpp>
#include <dhp/comm/launch_process.hpp>
#include <dhp/comm/shared_transport.hpp>

#include <memory>
#include <string>
#include <utility>

namespace dhp {

namespace detail {

/// Where this rank is reached by the others: what leads to rank 0, or from rank 0 to another machine.
[[nodiscard]] inline std::string own_address(ProcessWorld& world, const ProcessRank& me) {
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

/// For run_process_rank. Collective.
[[nodiscard]] inline Comm<Cpu> connect_gloo(const std::shared_ptr<ProcessWorld>& world,
                                            const ProcessRank& me, const ProcessOptions& options) {
  const auto shared =
      connect_shared(*world, {.domain = options.shared_memory ? memory_domain() : std::string()});
  if (!shared.refused.empty() && options.log)
    options.log(concat("memory is not shared with all ranks of this machine, which use sockets: ",
                       shared.refused));
  if (shared.all) return Comm<Cpu>::of(PeerComm(world, shared.transport));
  GlooOptions gloo;
  gloo.interface = options.network_interface;
  if (gloo.interface.empty()) gloo.address = detail::own_address(*world, me);
  std::shared_ptr<PeerTransport> transport = std::make_shared<GlooTransport>(*world, gloo);
  if (shared.transport)
    transport = std::make_shared<JoinedTransport>(shared.transport, std::move(transport));
  return Comm<Cpu>::of(PeerComm(world, std::move(transport)));
}

}  // namespace dhp
