// TcpStoreServer: the store of a job, in memory of rank 0, which serves the other ranks over TCP by a thread of its
// own. Whoever cannot prove to know the secret of the job is refused, and holds nobody up.
#pragma once

#include <dhp/comm/handshake.hpp>
#include <dhp/comm/host_name.hpp>
#include <dhp/comm/socket.hpp>
#include <dhp/comm/store_table.hpp>
#include <dhp/core/system_error.hpp>

#include <sys/eventfd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace dhp {

struct TcpStoreServerOptions {
  std::string host = "127.0.0.1";  ///< where to listen: an address of this machine, or its name
  int port = 0;                    ///< the first to be tried; 0: any that is free
  int ports = 32;                  ///< how many to try, where other jobs have taken the first ones
  std::string job{};
  std::string secret{};  ///< empty: none, which is for addresses that only this machine can reach
  int size = 0;          ///< ranks of the job; 0: not known
  double silence_s = 5;  ///< for a client to say who it is
  std::size_t most_clients = 4096;
  std::size_t most_strangers = 256;  ///< clients who have not said so yet
  StoreTable::Limits limits{};
  /// Who was refused and why, in a sentence; called by the server's thread.
  std::function<void(const std::string&)> log{};
};

namespace detail {

/// Where rank 0 listens that others know as `host`, which stands for `found` here. A machine's own name often stands
/// for loopback on itself (127.0.1.1 in Debian), and for an address that is not known there elsewhere: then that is all of its
/// addresses, if a secret keeps strangers out.
[[nodiscard]] inline std::vector<SocketAddress> addresses_to_listen(
    const std::string& host, std::vector<SocketAddress> found, bool secret) {
  const auto loopback = [](const SocketAddress& address) { return address.loopback(); };
  if (!secret || !is_own_name(host) || std::none_of(found.begin(), found.end(), loopback))
    return found;
  std::string problem;
  auto all = resolve("::", problem);  // those of IPv4, too, where there is IPv6
  const auto four = resolve("0.0.0.0", problem);
  all.insert(all.end(), four.begin(), four.end());
  return all;
}

}  // namespace detail

class TcpStoreServer final : public Store {
 public:
  using Options = TcpStoreServerOptions;

  explicit TcpStoreServer(Options options) : options_(std::move(options)), table_(options_.limits) {
    check(options_.job.size() <= handshake::longest_job_bytes, "the name of a job has at most ",
          handshake::longest_job_bytes, " bytes, got ", options_.job.size(), "; see DHP_JOB");
    listen();
    wake_ = Socket(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    check_system(static_cast<bool>(wake_), "the ", description(), " cannot start");
    thread_ = std::thread([this] { serve(); });
  }
  ~TcpStoreServer() override {
    (void)::eventfd_write(wake_.fd(), 1);
    thread_.join();
  }

  [[nodiscard]] int port() const { return address_.port(); }
  [[nodiscard]] std::string description() const override {
    return concat("TCP store at ", host_and_port(options_.host, port()));
  }
  [[nodiscard]] std::string own_address() override {
    const std::lock_guard lock(reached_mutex_);
    return host_of(reached_);
  }

  void set(const std::string& key, const std::string& value) override {
    check_key(key);
    check_value(key, value);
    table_.set(key, value);
  }
  [[nodiscard]] std::optional<std::string> find(const std::string& key) override {
    check_key(key);
    return table_.find(key);
  }
  [[nodiscard]] Entries list(const std::string& prefix) override {
    return table_.list(prefix, {}).first;
  }
  void remove(const std::string& key) override {
    check_key(key);
    table_.remove(key);
  }

 private:
  using Clock = std::chrono::steady_clock;

  struct Peer {
    Socket socket;
    std::string address{};
    Clock::time_point since = Clock::now();
    std::string nonce = dhp::nonce(handshake::nonce_bytes);
    FrameReader reader{handshake::longest_payload};
    FrameWriter writer{};
    std::string out{};     // nothing is read before all of it is sent
    std::size_t sent = 0;  // bytes of it
    int rank = -1;         // not known yet
    bool ended = false;
    bool leaving = false;  // to be ended when `out` is sent
  };

  void listen() {
    std::string problem;
    auto found = resolve(options_.host, problem);
    const auto addresses =
        detail::addresses_to_listen(options_.host, std::move(found), !options_.secret.empty());
    for (auto address : addresses) {
      if (!address.loopback() && options_.secret.empty()) {
        problem =
            "others can reach that address, so the job needs a secret: give all ranks the same "
            "DHP_JOB_SECRET or DHP_JOB_SECRET_FILE";
        continue;
      }
      const int ports = options_.port == 0 ? 1 : std::min(options_.ports, 65536 - options_.port);
      for (int at = 0; at < ports; ++at) {
        address.set_port(options_.port + at);
        listener_ = Socket::of_family(address.family());
        listener_.set(SOL_SOCKET, SO_REUSEADDR, 1);
        if (address.family() == AF_INET6) listener_.set(IPPROTO_IPV6, IPV6_V6ONLY, 0);
        if (listener_ && ::bind(listener_.fd(), address.data(), address.size()) == 0 &&
            ::listen(listener_.fd(), 1024) == 0) {
          address_ = SocketAddress::of(listener_.fd(), false);
          return;
        }
        problem = std::strerror(errno);
        if (errno != EADDRINUSE) {
          problem += "; it has to be an address of the machine of rank 0";
          break;
        }
        if (ports > 1) problem += concat(", and so are the ", ports - 1, " ports after it");
      }
    }
    fail("rank 0 cannot listen at ", host_and_port(options_.host, options_.port), ": ", problem);
  }

  void serve() {
    std::vector<pollfd> polled;
    std::string bytes;
    for (;;) {
      const bool listening = Clock::now() >= deaf_until_;
      polled.assign({{wake_.fd(), POLLIN, 0}});
      polled.push_back({listening ? listener_.fd() : -1, POLLIN, 0});
      for (const auto& peer : peers_)
        polled.push_back(
            {peer.socket.fd(), static_cast<short>(peer.out.empty() ? POLLIN : POLLOUT), 0});
      const bool timed = strangers_ > 0 || !listening;
      (void)::poll(polled.data(), polled.size(), timed ? 50 : -1);
      if (polled[0].revents != 0) return;
      std::size_t at = 2;
      for (auto& peer : peers_) {
        if (polled[at++].revents == 0) continue;
        try {
          attend(peer, bytes);
        } catch (const std::exception& error) {  // no memory, say: others have theirs
          end(peer, error.what());
        }
      }
      end_the_silent();
      peers_.remove_if([](const Peer& peer) { return peer.ended; });
      if (polled[1].revents != 0) accept();
      count();
    }
  }
  void count() {
    const auto known = [](const Peer& peer) { return peer.rank >= 0; };
    clients_ = static_cast<std::size_t>(std::count_if(peers_.begin(), peers_.end(), known));
    strangers_ = peers_.size() - clients_;
  }

  void accept() {
    for (int burst = 0; burst < 16; ++burst) {
      Socket socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket) {
        const bool full = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
        if (full && end_oldest_stranger()) continue;  // room is made
        if (full) deaf_until_ = Clock::now() + std::chrono::milliseconds(50);
        return;
      }
      count();
      if (strangers_ >= options_.most_strangers) (void)end_oldest_stranger();
      socket.prepare();
      auto& peer = peers_.emplace_back(Peer{.socket = std::move(socket)});
      peer.address = to_text(SocketAddress::of(peer.socket.fd(), true));
      write(peer, handshake::server_hello, peer.nonce);
    }
  }
  [[nodiscard]] bool end_oldest_stranger() {
    const auto oldest =
        std::find_if(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.rank < 0; });
    if (oldest == peers_.end()) return false;
    end(*oldest, "others wait who may have more to say");
    peers_.erase(oldest);
    return true;
  }
  void end_the_silent() {
    const std::chrono::duration<double> patience(options_.silence_s);
    for (auto& peer : peers_)
      if (peer.rank < 0 && Clock::now() - peer.since > patience)
        end(peer, peer.leaving
                      ? std::string()
                      : concat("it has not said who it is within ", options_.silence_s, " s"));
  }
  void end(Peer& peer, const std::string& why = {}) {
    peer.ended = true;
    report(peer, why);
  }
  /// Without a reason it is not worth a word.
  void report(const Peer& peer, const std::string& why) {
    if (why.empty() || !options_.log || logged_ >= most_logged) return;
    try {
      const auto who = peer.rank < 0 ? std::string() : concat(", rank ", peer.rank);
      const auto* const last = ++logged_ == most_logged ? "; no more of these are reported" : "";
      options_.log(concat("the ", description(), " closes a connection from ", peer.address, who,
                          ": ", why, last));
    } catch (const std::exception&) {  // a log that fails is no reason to fail
    }
  }

  void attend(Peer& peer, std::string& bytes) {
    if (peer.out.empty()) {
      bytes.resize(std::size_t{1} << 16);
      if (!peer.socket.receive(bytes, Deadline(0))) {
        if (errno != ETIMEDOUT) end(peer);
        return;
      }
      peer.reader.feed(bytes);
    } else {
      flush(peer);
    }
    while (!peer.ended && peer.out.empty()) {
      const auto frame = peer.reader.next();
      if (!peer.reader.refusal().empty()) end(peer, peer.reader.refusal());
      if (!frame) return;
      if (peer.rank < 0) meet(peer, *frame);
      else if (const auto answer = table_.answer(*frame))
        write(peer, answer->type, answer->payload);
      else end(peer, "its request makes no sense");
    }
  }
  void write(Peer& peer, std::uint8_t type, const std::string& payload) {
    peer.out += peer.writer.write(type, payload);
    flush(peer);
  }
  void flush(Peer& peer) {
    const auto left = peer.out.size() - peer.sent;
    const auto sent = ::send(peer.socket.fd(), peer.out.data() + peer.sent, left, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return end(peer);
    peer.sent += static_cast<std::size_t>(std::max<ssize_t>(sent, 0));
    if (peer.sent < peer.out.size()) return;
    peer.out.clear();
    peer.sent = 0;
    if (peer.leaving) end(peer);
  }

  void meet(Peer& peer, const Frame& frame) {
    using handshake::Refusal;
    const handshake::Job job{options_.job, options_.secret};
    const auto hello = frame.type == handshake::client_hello
                           ? handshake::read_client_hello(frame.payload, peer.nonce)
                           : std::nullopt;
    if (!hello) return end(peer, "its first frame is no hello");
    const auto& terms = hello->terms;
    if (hello->job != job.name) return refuse(peer, Refusal::job, {});  // it looks for its own
    if (!equal_in_constant_time(hello->proof, terms.client_proof(job)))
      return refuse(peer, Refusal::secret,
                    concat("as rank ", terms.rank, " it has not the secret of the job"));
    const auto size = static_cast<std::uint32_t>(options_.size == 0 ? 1 << 30 : options_.size);
    if (terms.rank >= size)
      return refuse(peer, Refusal::rank, concat("there is no rank ", terms.rank, " among ", size));
    const auto rank = static_cast<int>(terms.rank);
    if (std::any_of(peers_.begin(), peers_.end(),
                    [&](const Peer& other) { return other.rank == rank && !other.ended; }))
      return refuse(peer, Refusal::connected, concat("rank ", rank, " is connected already"));
    if (clients_ >= options_.most_clients)
      return refuse(peer, Refusal::full, concat("there are ", clients_, " clients already"));
    peer.rank = rank;
    ++clients_;
    note_reached(SocketAddress::of(peer.socket.fd(), false));
    write(peer, handshake::welcome, terms.server_proof(job));
    peer.writer.seal(terms.session_key(job), FrameSide::server);
    peer.reader.seal(terms.session_key(job), FrameSide::client, longest_store_payload);
  }
  void note_reached(const SocketAddress& here) {
    const std::lock_guard lock(reached_mutex_);
    if (reached_.size() == 0 || (reached_.loopback() && !here.loopback())) reached_ = here;
  }
  void refuse(Peer& peer, handshake::Refusal refusal, const std::string& why) {
    report(peer, why);
    peer.leaving = true;
    write(peer, handshake::refused, std::string(1, static_cast<char>(refusal)));
  }

  static constexpr int most_logged = 100;

  Options options_;
  StoreTable table_;
  Socket listener_;
  Socket wake_;
  SocketAddress address_;
  std::mutex reached_mutex_;
  SocketAddress reached_{};  // by ranks, and by those of other machines if there are any
  // The rest is the thread's.
  std::list<Peer> peers_{};
  std::size_t clients_ = 0;
  std::size_t strangers_ = 0;
  int logged_ = 0;
  Clock::time_point deaf_until_{};
  std::thread thread_;
};

}  // namespace dhp
