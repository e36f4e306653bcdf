// Sockets of TCP with a time limit on everything, and the addresses that a host's name stands for.
#pragma once

#include <dhp/core/error.hpp>

#include <arpa/inet.h>
#include <fcntl.h>
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
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dhp {

/// A moment in the future, by a clock that nobody sets.
class Deadline {
 public:
  explicit Deadline(double seconds)
      : end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                std::chrono::duration<double>(std::min(seconds, 1e8)))) {}
  [[nodiscard]] double left_s() const {
    return std::chrono::duration<double>(end_ - Clock::now()).count();
  }
  [[nodiscard]] bool passed() const { return left_s() <= 0; }
  /// The rest as poll(2) wants it, in milliseconds.
  [[nodiscard]] int poll_ms() const {
    return static_cast<int>(std::ceil(std::clamp(left_s() * 1e3, 0.0, 1e6)));
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point end_;
};

/// "10.0.0.1:29400", "[::1]:29400"
[[nodiscard]] inline std::string host_and_port(const std::string& host, int port) {
  const bool six = host.find(':') != host.npos;
  return concat(six ? "[" : "", host, six ? "]:" : ":", port);
}

/// An address of IPv4 or IPv6, with a port.
class SocketAddress {
 public:
  SocketAddress() = default;
  SocketAddress(const sockaddr* address, socklen_t size) : size_(size) {
    std::memcpy(&storage_, address, std::min<std::size_t>(size, sizeof storage_));
  }
  /// Of this end of a socket, or of the other one: empty where there is none.
  [[nodiscard]] static SocketAddress of(int fd, bool other_end) {
    SocketAddress made;
    made.size_ = sizeof made.storage_;
    const auto status = other_end ? ::getpeername(fd, made.data(), &made.size_)
                                  : ::getsockname(fd, made.data(), &made.size_);
    if (status != 0) return {};
    return made;
  }

  [[nodiscard]] sockaddr* data() { return reinterpret_cast<sockaddr*>(&storage_); }
  [[nodiscard]] const sockaddr* data() const {
    return reinterpret_cast<const sockaddr*>(&storage_);
  }
  [[nodiscard]] socklen_t size() const { return size_; }
  [[nodiscard]] int family() const { return storage_.ss_family; }
  [[nodiscard]] int port() const {
    return ntohs(family() == AF_INET6 ? six()->sin6_port : four()->sin_port);
  }
  void set_port(int port) {
    const auto value = htons(static_cast<std::uint16_t>(port));
    if (family() == AF_INET6) reinterpret_cast<sockaddr_in6*>(&storage_)->sin6_port = value;
    else reinterpret_cast<sockaddr_in*>(&storage_)->sin_port = value;
  }
  /// Whether only this machine can talk to it.
  [[nodiscard]] bool loopback() const {
    if (family() == AF_INET) return ntohl(four()->sin_addr.s_addr) >> 24 == 127;
    const auto* const bytes = six()->sin6_addr.s6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&six()->sin6_addr)) return bytes[12] == 127;
    return IN6_IS_ADDR_LOOPBACK(&six()->sin6_addr);
  }

 private:
  [[nodiscard]] const sockaddr_in* four() const {
    return reinterpret_cast<const sockaddr_in*>(&storage_);
  }
  [[nodiscard]] const sockaddr_in6* six() const {
    return reinterpret_cast<const sockaddr_in6*>(&storage_);
  }

  sockaddr_storage storage_{};
  socklen_t size_ = 0;
};

/// In digits, without the port: "10.0.0.1", "::1"; empty where there is none.
[[nodiscard]] inline std::string host_of(const SocketAddress& address) {
  char text[NI_MAXHOST] = "";
  if (address.size() == 0 || ::getnameinfo(address.data(), address.size(), text, sizeof text,
                                           nullptr, 0, NI_NUMERICHOST) != 0)
    return {};
  const std::string_view host = text, mapped = "::ffff:";  // IPv4 at a socket for both
  const bool four = host.starts_with(mapped) && host.find('.') != host.npos;
  return std::string(four ? host.substr(mapped.size()) : host);
}
[[nodiscard]] inline std::string to_text(const SocketAddress& address) {
  const auto host = host_of(address);
  return host.empty() ? "an unknown address" : host_and_port(host, address.port());
}

/// What a name, or an address in digits, stands for; empty, with the reason in `problem`, where that is nothing.
/// A name may have to be asked for over the network, for as long as the system has patience.
[[nodiscard]] inline std::vector<SocketAddress> resolve(const std::string& host,
                                                        std::string& problem) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  std::vector<SocketAddress> addresses;
  const int status = ::getaddrinfo(host.c_str(), nullptr, &wanted, &found);
  if (status != 0) {
    problem = concat("the name cannot be resolved (", ::gai_strerror(status), ")");
    return addresses;
  }
  for (const auto* at = found; at != nullptr; at = at->ai_next)
    if (at->ai_family == AF_INET || at->ai_family == AF_INET6)
      addresses.emplace_back(at->ai_addr, at->ai_addrlen);
  ::freeaddrinfo(found);
  if (addresses.empty()) problem = "the name stands for no address of IPv4 or IPv6";
  return addresses;
}

/// A file descriptor that closes itself, and never blocks.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  /// For TCP. Without one, errno says why.
  [[nodiscard]] static Socket of_family(int family) {
    return Socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
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
  void set(int level, int option, int value) const {
    (void)::setsockopt(fd_, level, option, &value, sizeof value);
  }
  /// Small messages go at once, and the other machine's end is noticed.
  void prepare() const {
    set(IPPROTO_TCP, TCP_NODELAY, 1);
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
    set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  }

  /// Waits for events of poll(2); false, with errno ETIMEDOUT, after the deadline.
  [[nodiscard]] bool wait(short events, const Deadline& deadline) const {
    for (;;) {
      pollfd polled{fd_, events, 0};
      const int ready = ::poll(&polled, 1, deadline.poll_ms());
      if (ready > 0) return true;
      if (ready == 0 && deadline.passed()) errno = ETIMEDOUT;
      if ((ready == 0 && errno == ETIMEDOUT) || (ready < 0 && errno != EINTR)) return false;
    }
  }
  /// These three return whether it went well; errno says what did not. A connection that the other side has
  /// closed gives ECONNRESET. After ETIMEDOUT connect() may be called again, to go on.
  [[nodiscard]] bool connect(const SocketAddress& to, const Deadline& deadline) const {
    if (::connect(fd_, to.data(), to.size()) == 0 || errno == EISCONN) return true;
    if (errno != EINPROGRESS && errno != EINTR && errno != EALREADY) return false;
    if (!wait(POLLOUT, deadline)) return false;
    socklen_t size = sizeof errno;
    int problem = 0;
    if (::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &problem, &size) == 0) errno = problem;
    return errno == 0;
  }
  [[nodiscard]] bool send(std::string_view bytes, const Deadline& deadline) const {
    while (!bytes.empty()) {
      const auto sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent >= 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
      else if (errno == EAGAIN && !wait(POLLOUT, deadline)) return false;
      else if (errno != EAGAIN && errno != EINTR) return false;
    }
    return true;
  }
  /// What has come, at least one byte and at most the size of `bytes`, which becomes as long.
  [[nodiscard]] bool receive(std::string& bytes, const Deadline& deadline) const {
    for (;;) {
      const auto got = ::recv(fd_, bytes.data(), bytes.size(), 0);
      if (got > 0) {
        bytes.resize(static_cast<std::size_t>(got));
        return true;
      }
      if (got == 0) errno = ECONNRESET;
      if (got < 0 && errno == EINTR) continue;
      if (got == 0 || errno != EAGAIN || !wait(POLLIN, deadline)) return false;
    }
  }

 private:
  int fd_ = -1;
};

}  // namespace dhp
