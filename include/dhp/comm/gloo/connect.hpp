// connect_gloo connects the ranks of a CPU job over Gloo. It needs Gloo and OpenSSL.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/comm/gloo/gloo_messages.hpp>
#include <dhp/comm/launch_process.hpp>
#include <dhp/comm/messages/process_comm.hpp>

#include <memory>
#include <string>

namespace dhp {

namespace detail {

/// Returns the address at which others reach this rank: the chosen interface's, or one found by connecting. Collective.
[[nodiscard]] inline std::string own_address(ProcessWatchdog& watchdog,
                                             const ProcessOptions& options) {
  auto& store = watchdog.store();
  const auto here = host_name();
  std::string first, other;                                  // rank 0's host, and a remote one
  for (const auto& [key, value] : store.list("arrived/")) {  // key "arrived/3": "node7 4711"
    const auto host = value.substr(0, value.find(' '));
    if (key == "arrived/0") first = host;
    if (host != here) other = host;
  }
  const bool chosen = !options.network_interface.empty();
  auto address = chosen ? address_of_interface(options.network_interface) : store.own_address();
  if (address.empty()) address = other.empty() ? "127.0.0.1" : address_towards(other);
  const std::string key = "hosts/first";
  if (watchdog.rank() == 0) store.set(key, address);
  // A rank on rank 0's machine may have reached it by loopback. Other machines reach such a rank at rank 0's address.
  else if (!chosen && first == here && is_loopback(address)) address = watchdog.get(key);
  check(chosen || other.empty() || !is_loopback(address), "rank ", watchdog.rank(), " on ", here,
        " would listen at ", address, ", where those on ", other,
        " cannot reach it; choose the interface of a network that leads to them");
  return address;
}

}  // namespace detail

/// Connects this rank to its job over Gloo; an argument of run_process_rank. Collective.
[[nodiscard]] inline Comm<Cpu> connect_gloo(const std::shared_ptr<ProcessWatchdog>& watchdog,
                                            const ProcessRank& me, const ProcessOptions& options) {
  const auto address = detail::own_address(*watchdog, options);
  return detail::recorded(
      *watchdog, detail::ProcessComm(watchdog, me.rank, me.size,
                                     std::make_shared<detail::GlooMessages>(watchdog, address)));
}

}  // namespace dhp
