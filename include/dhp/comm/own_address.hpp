// Where this machine can be reached: its address on the way to another host, and whether an address or a network
// interface is its own.
#pragma once

#include <dhp/comm/socket.hpp>
#include <dhp/core/system_error.hpp>

#include <ifaddrs.h>
#include <net/if.h>

#include <memory>
#include <string>

namespace dhp {

/// The address of this machine that talks to `host` ("127.0.0.1", a name, "::1"): what peers can reach it at.
[[nodiscard]] inline std::string address_towards(const std::string& host) {
  std::string problem;
  for (auto address : resolve(host, problem)) {
    constexpr int any_port = 9;
    address.set_port(any_port);
    const Socket socket(::socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
    // Nothing is sent: a datagram socket is connected by choosing its route.
    if (!socket || ::connect(socket.fd(), address.data(), address.size()) != 0) continue;
    if (auto own = host_of(SocketAddress::of(socket.fd(), false)); !own.empty()) return own;
  }
  check(problem.empty(), "the host ", host, " cannot be found: ", problem);
  fail("this machine has no route to ", host, "; is the network up?");
}

/// Throws where it is not one of this machine's.
inline void check_interface(const std::string& name) {
  if (::if_nametoindex(name.c_str()) != 0) return;
  std::string there;
  const std::unique_ptr<struct if_nameindex, void (*)(struct if_nameindex*)> all(
      ::if_nameindex(), ::if_freenameindex);
  for (const auto* each = all.get(); each != nullptr && each->if_index != 0; ++each)
    append_text(there, concat(there.empty() ? "" : ", ", each->if_name));
  fail("this machine has no network interface ", name, "; it has ", there);
}
/// An address of a network interface of this machine ("eth0"), of IPv4 where it has one. Those of IPv6 that are good on
/// one link only are left out: who uses them has to know the link.
[[nodiscard]] inline std::string address_of_interface(const std::string& name) {
  check_interface(name);
  ifaddrs* first = nullptr;
  check_system(::getifaddrs(&first) == 0, "cannot ask for the addresses of ", name);
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(first, ::freeifaddrs);
  const auto of_family = [&](int family, socklen_t size) -> std::string {
    for (const auto* each = first; each != nullptr; each = each->ifa_next) {
      if (name != each->ifa_name || !each->ifa_addr || each->ifa_addr->sa_family != family)
        continue;
      auto text = host_of(SocketAddress(each->ifa_addr, size));
      if (!text.empty() && text.find('%') == text.npos) return text;
    }
    return {};
  };
  auto found = of_family(AF_INET, sizeof(sockaddr_in));
  if (found.empty()) found = of_family(AF_INET6, sizeof(sockaddr_in6));
  check(!found.empty(), "the network interface ", name,
        " has no address that other machines can use; give it one, or choose another interface");
  return found;
}
/// Whether only this machine can talk to that address, or name.
[[nodiscard]] inline bool is_loopback(const std::string& host) {
  std::string problem;
  const auto addresses = resolve(host, problem);
  return !addresses.empty() && addresses.front().loopback();
}
inline void check_own_address(const std::string& host) {
  std::string problem;
  const auto addresses = resolve(host, problem);
  check(!addresses.empty(), "the address ", host, " cannot be found: ", problem);
  const auto& first = addresses.front();
  const auto socket = Socket::of_family(first.family());
  check_system(socket && ::bind(socket.fd(), first.data(), first.size()) == 0,
               "this machine cannot listen at ", host);
}

}  // namespace dhp
