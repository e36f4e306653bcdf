// connect_hosts: shared memory between the processes of one machine, on CPUs, and another transport between machines.
// connect_sockets (comm/launch_sockets.hpp) and connect_gloo (comm/launch_gloo.hpp) are this with theirs.
#pragma once

#include <dhp/comm/launch_process.hpp>
#include <dhp/comm/meet/address.hpp>
#include <dhp/comm/peers.hpp>
#include <dhp/comm/shared_transport.hpp>

#include <memory>
#include <string>
#include <utility>

namespace dhp {

namespace detail {

/// Where this rank is reached by the others: at its interface, where it has reached rank 0 or rank 0 has been reached, or,
/// where they have met in a folder, on the way to another machine. Collective.
[[nodiscard]] inline std::string own_address(ProcessWorld& world, const ProcessOptions& options) {
  auto& store = world.store();
  const auto here = host_name();
  std::string first, other;  // machines: that of rank 0, and one that is not this one
  for (const auto& [key, value] : store.list("arrived/")) {  // "arrived/3" is "node7 4711"
    const auto host = value.substr(0, value.find(' '));
    if (key == "arrived/0") first = host;
    if (host != here) other = host;
  }
  const bool chosen = !options.network_interface.empty();
  auto address =
      chosen ? comm::address_of_interface(options.network_interface) : store.own_address();
  if (address.empty())
    address = other.empty() ? "127.0.0.1" : comm::address_towards(first != here ? first : other);
  const std::string key = "hosts/first";
  if (world.rank() == 0) store.set(key, address);
  // It has reached rank 0 within their machine, which others may have reached at another address.
  else if (!chosen && first == here && comm::is_loopback(address)) address = world.get(key);
  check(chosen || other.empty() || !comm::is_loopback(address), "rank ", world.rank(), " on ", here,
        " would listen at ", address, ", where those on ", other,
        " cannot reach it; --network-interface chooses a network that leads to them");
  return address;
}

}  // namespace detail

/// far(address, joined) makes the transport between machines, to ranks that reach this one at that address: collective.
/// joined: ranks also wait in shared memory, and what they have begun between machines has to go on meanwhile.
template <class Far>
[[nodiscard]] Comm<Cpu> connect_hosts(const std::shared_ptr<ProcessWorld>& world,
                                      const ProcessOptions& options, Far far) {
  const auto shared =
      connect_shared(*world, {.domain = options.shared_memory ? memory_domain() : std::string()});
  if (!shared.refused.empty() && options.log)
    options.log(concat("memory is not shared with all ranks of this machine, which use sockets: ",
                       shared.refused));
  if (shared.all) return Comm<Cpu>::of(PeerComm(world, shared.transport));
  std::shared_ptr<PeerTransport> transport =
      far(detail::own_address(*world, options), shared.transport != nullptr);
  if (shared.transport)
    transport = std::make_shared<JoinedTransport>(shared.transport, std::move(transport));
  return Comm<Cpu>::of(PeerComm(world, std::move(transport)));
}

}  // namespace dhp
