// Finds, parses and checks host names and network addresses.
#pragma once

#include <dhp/comm/rendezvous/socket.hpp>
#include <dhp/core/process_name.hpp>
#include <dhp/core/system_error.hpp>

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

namespace dhp::detail {

/// Returns whether `name` is this machine's name, ignoring domains: "node7.cluster" for "node7". Never "localhost".
[[nodiscard]] inline bool is_own_name(std::string_view name) {
  const auto own = host_name();
  const auto label = [](std::string_view of) { return of.substr(0, of.find('.')); };
  return label(name) == label(own) && label(name) != "localhost";
}

/// Parses a port, from 1 to 65535. what: the source of the text, for messages.
[[nodiscard]] inline int parse_port(std::string_view what, std::string_view digits) {
  const auto port = number_of<int>(digits);
  check(port && *port >= 1 && *port <= 65535, what, ": \"", digits,
        "\" is no port; ports are whole numbers from 1 to 65535");
  return *port;
}

/// Parses host, host:port or [::1]:port; port 0 means that the text has no port.
[[nodiscard]] inline HostPort parse_host_port(std::string_view what, std::string_view text) {
  const bool bracketed = text.starts_with('[');
  const auto end = std::min(text.find(bracketed ? ']' : ':'), text.size());
  check(!bracketed || end < text.size(), what, ": \"", text, "\" does not close its bracket");
  const auto host = bracketed ? text.substr(1, end - 1) : text.substr(0, end);
  const auto rest = text.substr(end + (bracketed ? 1 : 0));  // empty, or a colon and the port
  check(bracketed || rest.find(':', 1) == rest.npos, what, ": \"", text,
        "\" is an IPv6 address without brackets; write [", text, "] or [", text, "]:port");
  check(!host.empty() && host.find_first_of("[] \t/") == host.npos &&
            (rest.empty() || rest.front() == ':'),
        what, ": \"", text, "\" is not host:port");
  return {std::string(host), rest.empty() ? 0 : parse_port(what, rest.substr(1))};
}

/// Returns the address that this machine uses towards `host` (a name or an address); peers there can reach it.
[[nodiscard]] inline std::string address_towards(const std::string& host) {
  constexpr int any_port = 9;
  std::string problem;
  for (const auto& address : resolve({host, any_port}, problem)) {
    // Connecting a datagram socket only chooses its route; nothing is sent.
    const auto socket = Socket::connected(address, Deadline(0), SOCK_DGRAM);
    if (auto own = socket.own_end().host; !own.empty()) return own;
  }
  check(problem.empty(), "the host ", host, " cannot be found: ", problem);
  fail("this machine has no route to ", host, "; is the network up?");
}

/// Returns an address of a network interface ("eth0"): IPv4 if it has one, else IPv6 that is not link-local.
[[nodiscard]] inline std::string address_of_interface(const std::string& name) {
  ifaddrs* first = nullptr;
  check_system(::getifaddrs(&first) == 0, "cannot ask for the addresses of ", name);
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(first, ::freeifaddrs);
  std::string six, others;
  bool exists = false;
  for (const auto* each = first; each != nullptr; each = each->ifa_next) {
    if (name != each->ifa_name) {
      if (concat(", ", others, ",").find(concat(", ", each->ifa_name, ",")) == others.npos)
        others += concat(others.empty() ? "" : ", ", each->ifa_name);
      continue;
    }
    exists = true;
    const int family = each->ifa_addr != nullptr ? each->ifa_addr->sa_family : AF_UNSPEC;
    if (family == AF_INET) return in_digits(each->ifa_addr, sizeof(sockaddr_in)).host;
    if (family != AF_INET6) continue;
    const auto text = in_digits(each->ifa_addr, sizeof(sockaddr_in6)).host;
    if (six.empty() && text.find('%') == text.npos) six = text;
  }
  check(exists, "this machine has no network interface ", name, "; it has ", others);
  check(!six.empty(), "the network interface ", name,
        " has no address that other machines can use; give it one, or choose another interface");
  return six;
}
/// Returns whether an address or name is loopback, so that only this machine can reach it.
[[nodiscard]] inline bool is_loopback(const std::string& host) {
  std::string problem;
  const auto addresses = resolve({host}, problem);
  return !addresses.empty() && addresses.front().loopback();
}
/// Returns a socket that listens at an address or name of this machine. Throws if there can be none.
[[nodiscard]] inline Socket listening_at(const std::string& host) {
  std::string problem;
  const auto addresses = resolve({host}, problem);
  check(!addresses.empty(), "the address ", host, " cannot be found: ", problem);
  auto result = Socket::listening(addresses.front());
  check_system(static_cast<bool>(result), "this machine cannot listen at ", host);
  return result;
}

}  // namespace dhp::detail
