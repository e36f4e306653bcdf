// TCP sockets with a time limit for every operation, and name resolution.
#pragma once

#include <dhp/core/error.hpp>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dhp::detail {

/// A point in time, a number of seconds from now.
class Deadline {
 public:
  explicit Deadline(double seconds)
      : end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                std::chrono::duration<double>(std::min(seconds, 1e8)))) {}
  [[nodiscard]] double left_s() const {
    return std::chrono::duration<double>(end_ - Clock::now()).count();
  }
  [[nodiscard]] bool passed() const { return left_s() <= 0; }
  /// Returns the remaining milliseconds, for poll(2).
  [[nodiscard]] int poll_ms() const {
    return static_cast<int>(std::ceil(std::clamp(left_s() * 1e3, 0.0, 1e6)));
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point end_;
};

struct HostPort {
  std::string host;  // a name or a numeric address; IPv6 without brackets
  int port = 0;
  void pass(auto& fields) { fields(host, port); }

  /// Returns "10.0.0.1:29400" or "[::1]:29400".
  friend std::string to_text(const HostPort& at) {
    const bool six = at.host.find(':') != at.host.npos;
    return concat(six ? "[" : "", at.host, six ? "]:" : ":", at.port);
  }
  /// Returns whether a numeric address is loopback.
  [[nodiscard]] bool loopback() const { return host == "::1" || host.starts_with("127."); }
};

/// Returns a numeric address; its host is empty on failure. IPv4-mapped IPv6 is written as IPv4.
[[nodiscard]] inline HostPort in_digits(const sockaddr* address, socklen_t size) {
  char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "";
  if (::getnameinfo(address, size, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return {};
  const std::string_view text = host, mapped = "::ffff:";
  const bool four = text.starts_with(mapped) && text.find('.') != text.npos;
  return {std::string(four ? text.substr(mapped.size()) : text), std::atoi(port)};
}

using AddressInfo = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;
/// Returns null, with the reason in `problem`, if the host has no address. May block as long as the system's resolver.
[[nodiscard]] inline AddressInfo look_up(const HostPort& at, std::string& problem) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int status =
      ::getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &wanted, &found);
  if (status != 0) problem = concat("the name cannot be resolved (", ::gai_strerror(status), ")");
  return {status == 0 ? found : nullptr, ::freeaddrinfo};
}
/// Returns a host's numeric addresses, with the port. Leaves out link-local ones without an interface.
[[nodiscard]] inline std::vector<HostPort> resolve(const HostPort& at, std::string& problem) {
  const auto found = look_up(at, problem);
  std::vector<HostPort> addresses;
  for (const auto* each = found.get(); each != nullptr; each = each->ai_next) {
    if (each->ai_family != AF_INET && each->ai_family != AF_INET6) continue;
    auto address = in_digits(each->ai_addr, each->ai_addrlen);
    const bool link_local = each->ai_family == AF_INET6 && address.host.starts_with("fe80:");
    if (link_local && address.host.find('%') == address.host.npos)
      problem = concat("a link-local address needs its interface: ", address.host, "%eth0");
    else addresses.push_back(std::move(address));
  }
  return addresses;
}

/// Owns a nonblocking file descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  /// listening and connected take a numeric address. On failure they return an empty Socket and set errno.
  [[nodiscard]] static Socket listening(const HostPort& at) {
    std::string problem;
    const auto address = look_up(at, problem);
    auto result = of_family(address, SOCK_STREAM);
    if (!result) return {};
    result.set(SOL_SOCKET, SO_REUSEADDR, 1);
    if (address->ai_family == AF_INET6) result.set(IPPROTO_IPV6, IPV6_V6ONLY, 0);
    const bool good = ::bind(result.fd_, address->ai_addr, address->ai_addrlen) == 0 &&
                      ::listen(result.fd_, 1024) == 0;
    return good ? std::move(result) : Socket();
  }
  [[nodiscard]] static Socket connected(const HostPort& to, const Deadline& deadline,
                                        int type = SOCK_STREAM) {
    std::string problem;
    const auto address = look_up(to, problem);
    auto result = of_family(address, type);
    if (!result) return {};
    if (::connect(result.fd_, address->ai_addr, address->ai_addrlen) == 0) return result;
    if (errno != EINPROGRESS || !result.wait(POLLOUT, deadline)) return {};
    int error = 0;
    socklen_t size = sizeof error;
    if (::getsockopt(result.fd_, SOL_SOCKET, SO_ERROR, &error, &size) == 0) errno = error;
    return errno == 0 ? std::move(result) : Socket();
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() { close(); }

  [[nodiscard]] int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  [[nodiscard]] HostPort own_end() const { return end(::getsockname); }
  [[nodiscard]] HostPort other_end() const { return end(::getpeername); }
  /// Makes the socket send small messages immediately, and notice a lost machine after 25 s without traffic.
  void prepare() const {
    set(IPPROTO_TCP, TCP_NODELAY, 1);
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
    set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  }

  /// Waits for poll(2) events; returns false, with errno ETIMEDOUT, after the deadline.
  [[nodiscard]] bool wait(short events, const Deadline& deadline) const {
    for (;;) {
      pollfd polled{fd_, events, 0};
      const int ready = ::poll(&polled, 1, deadline.poll_ms());
      if (ready > 0) return true;
      if (ready == 0 && deadline.passed()) errno = ETIMEDOUT;
      if ((ready == 0 && errno == ETIMEDOUT) || (ready < 0 && errno != EINTR)) return false;
    }
  }
  /// send and receive return false and set errno on failure; to ECONNRESET if the other side has closed the connection.
  [[nodiscard]] bool send(std::string_view bytes, const Deadline& deadline) const {
    while (!bytes.empty()) {
      const auto sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent >= 0) bytes.remove_prefix(as_size(sent));
      else if (errno == EAGAIN && !wait(POLLOUT, deadline)) return false;
      else if (errno != EAGAIN && errno != EINTR) return false;
    }
    return true;
  }
  /// Receives at least one byte, at most bytes.size(), and resizes `bytes` to the received ones.
  [[nodiscard]] bool receive(std::string& bytes, const Deadline& deadline) const {
    for (;;) {
      const auto got = ::recv(fd_, bytes.data(), bytes.size(), 0);
      if (got > 0) {
        bytes.resize(as_size(got));
        return true;
      }
      if (got == 0) errno = ECONNRESET;
      if (got < 0 && errno == EINTR) continue;
      if (got == 0 || errno != EAGAIN || !wait(POLLIN, deadline)) return false;
    }
  }

 private:
  [[nodiscard]] static Socket of_family(const AddressInfo& address, int type) {
    if (!address) errno = EADDRNOTAVAIL;
    return Socket(address ? ::socket(address->ai_family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)
                          : -1);
  }
  void set(int level, int option, int value) const {
    (void)::setsockopt(fd_, level, option, &value, sizeof value);
  }
  [[nodiscard]] HostPort end(auto get) const {
    sockaddr_storage storage{};
    socklen_t size = sizeof storage;
    auto* const address = reinterpret_cast<sockaddr*>(&storage);
    return get(fd_, address, &size) == 0 ? in_digits(address, size) : HostPort();
  }

  int fd_ = -1;
};

}  // namespace dhp::detail
