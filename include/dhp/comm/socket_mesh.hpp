// connect_mesh(): a connection of TCP between every two ranks of a world. Each rank listens, tells in the store where, and
// connects to all lower ones; both sides prove that they belong to the job by the handshake of the store. Whoever
// cannot is hung up on, and holds nobody up.
#pragma once

#include <dhp/comm/handshake.hpp>
#include <dhp/comm/host_port.hpp>
#include <dhp/comm/process_world.hpp>
#include <dhp/comm/socket.hpp>
#include <dhp/core/system_error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

struct SocketMeshOptions {
  std::string address = "127.0.0.1";  ///< of this machine, at which the other ranks reach it
  std::string job{};                  ///< equal on all ranks
  std::string secret{};               ///< equal on all ranks; see job_secret()
  std::string keys = "sockets/";      ///< in the store, where it is not done only once
  double connect_s = 60;              ///< for a rank to answer another one
  double silence_s = 5;               ///< for who has connected to say who it is
  std::size_t most_strangers = 256;   ///< who have not said so yet
};

namespace detail {

class SocketMesh {
 public:
  SocketMesh(ProcessWorld& world, const SocketMeshOptions& options)
      : world_(&world), options_(options) {}

  [[nodiscard]] std::map<int, Socket> connect() {
    listen();
    auto& store = world_->store();
    // Of this start: without it, one of an earlier start that still runs could connect.
    if (world_->rank() == 0) store.set(options_.keys + "start", hex(nonce(handshake::nonce_bytes)));
    store.set(key(world_->rank()), to_text(SocketAddress::of(listener_.fd(), false)));
    start_ = world_->get(options_.keys + "start");
    for (int lower = 0; lower < world_->rank(); ++lower)
      links_.emplace(lower, connected(lower, world_->get(key(lower))));
    while (links_.size() + 1 < static_cast<std::size_t>(world_->size())) attend();
    return std::move(links_);
  }

 private:
  /// Who has connected and has not said who it is.
  struct Stranger {
    Socket socket;
    std::string nonce = dhp::nonce(handshake::nonce_bytes);
    FrameReader reader{handshake::longest_payload};
    FrameWriter writer{};
    Deadline patience;
    bool gone = false;
  };
  static constexpr int look_ms = 100;  // whether the world has ended

  [[nodiscard]] static Deadline look_for() { return Deadline(look_ms / 1e3); }
  [[nodiscard]] std::string key(int rank) const { return concat(options_.keys, "at/", rank); }
  /// What both sides of a connection to this rank must know.
  [[nodiscard]] handshake::Job job_of(int listening) const {
    return {concat(options_.job, " rank ", listening), options_.secret + start_};
  }
  [[nodiscard]] std::string me() const { return concat("rank ", world_->rank()); }

  void listen() {
    std::string problem;
    const auto addresses = resolve(options_.address, problem);
    check(!addresses.empty(), me(), " cannot listen at ", options_.address, ": ", problem);
    const auto& address = addresses.front();
    listener_ = Socket::of_family(address.family());
    const bool listens = listener_ && ::bind(listener_.fd(), address.data(), address.size()) == 0 &&
                         ::listen(listener_.fd(), 4096) == 0;
    check_system(listens, me(), " cannot listen at ", options_.address);
  }

  [[nodiscard]] Socket connected(int other, const std::string& at) const {
    const auto place = HostPort::parse("where a rank listens", at);
    std::string problem;
    auto addresses = resolve(place.host, problem);
    check(!addresses.empty(), me(), " cannot connect to rank ", other, " at ", at, ": ", problem);
    addresses.front().set_port(place.port);
    auto socket = Socket::of_family(addresses.front().family());
    const Deadline until(options_.connect_s);
    while (!socket || !socket.connect(addresses.front(), look_for())) {
      if (errno != ETIMEDOUT || until.passed()) unreachable(other, at, errno);
      world_->check_alive();
    }
    const auto job = job_of(other);
    FrameReader reader(handshake::longest_payload);
    FrameWriter writer;
    const auto hello = heard(socket, reader, handshake::nonce_bytes, until, other, at);
    const bool sensible =
        hello.type == handshake::server_hello && hello.payload.size() == handshake::nonce_bytes;
    check(sensible, me(), " finds something else at ", at, ", where rank ", other,
          " has said that it listens");
    const handshake::Terms terms{hello.payload, nonce(handshake::nonce_bytes),
                                 static_cast<std::uint32_t>(world_->rank())};
    if (!socket.send(
            writer.write(handshake::client_hello, handshake::write_client_hello(terms, job)),
            until))
      world_->lost(other, std::strerror(errno));
    const auto verdict = heard(socket, reader, hmac_bytes, until, other, at);
    check(verdict.type == handshake::welcome &&
              equal_in_constant_time(verdict.payload, terms.server_proof(job)),
          me(), " and rank ", other, " at ", at,
          " do not know the same secret; give all ranks the same DHP_JOB_SECRET or "
          "DHP_JOB_SECRET_FILE");
    return socket;
  }
  /// The next frame, of a payload that long, and nothing after it: the other rank may go on to send messages. It may also
  /// be busy with others for a while.
  [[nodiscard]] Frame heard(const Socket& socket, FrameReader& reader, std::size_t payload_bytes,
                            const Deadline& until, int other, const std::string& at) const {
    std::string bytes;
    for (;;) {
      if (auto frame = reader.next()) return std::move(*frame);
      check(reader.refusal().empty(), me(), " does not understand what rank ", other, " at ", at,
            " says: ", reader.refusal());
      world_->check_alive();
      bytes.resize(FrameWriter::header_bytes + payload_bytes - reader.buffered_bytes());
      if (socket.receive(bytes, look_for())) {
        reader.feed(bytes);
      } else if (errno != ETIMEDOUT) {
        world_->lost(other, std::strerror(errno));
      } else if (until.passed()) {
        unreachable(other, at, errno);
      }
    }
  }
  [[noreturn]] void unreachable(int other, const std::string& at, int error) const {
    world_->check_alive();
    fail(me(), " cannot connect to rank ", other, " at ", at, ": ", std::strerror(error),
         "; can this machine reach that address? --network-interface chooses where a rank listens");
  }

  /// Those who have connected, for a while.
  void attend() {
    world_->check_alive();
    std::vector<pollfd> polled{{listener_.fd(), POLLIN, 0}};
    for (const auto& stranger : strangers_) polled.push_back({stranger.socket.fd(), POLLIN, 0});
    (void)::poll(polled.data(), polled.size(), look_ms);
    std::size_t at = 1;
    for (auto& stranger : strangers_) {
      if (polled[at++].revents != 0) hear(stranger);
      stranger.gone = stranger.gone || stranger.patience.passed();
    }
    strangers_.remove_if([](const Stranger& stranger) { return stranger.gone; });
    if (polled[0].revents != 0) accept();
  }
  void accept() {
    Socket socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    // So many may be ranks.
    const auto ranks = static_cast<std::size_t>(world_->size());
    if (strangers_.size() >= options_.most_strangers + ranks) strangers_.pop_front();
    if (!socket) return;
    auto& stranger = strangers_.emplace_back(
        Stranger{.socket = std::move(socket), .patience = Deadline(options_.silence_s)});
    stranger.gone = !stranger.socket.send(
        stranger.writer.write(handshake::server_hello, stranger.nonce), Deadline(0));
  }
  void hear(Stranger& stranger) {
    std::string bytes(handshake::longest_payload, '\0');
    stranger.gone = !stranger.socket.receive(bytes, Deadline(0)) && errno != ETIMEDOUT;
    if (stranger.gone) return;
    stranger.reader.feed(bytes);
    const auto frame = stranger.reader.next();
    stranger.gone = frame || !stranger.reader.refusal().empty();
    if (!frame || frame->type != handshake::client_hello) return;
    const auto hello = handshake::read_client_hello(frame->payload, stranger.nonce);
    const auto job = job_of(world_->rank());
    if (!hello) return;
    if (hello->job != job.name ||
        !equal_in_constant_time(hello->proof, hello->terms.client_proof(job))) {
      const std::string why(1, static_cast<char>(handshake::Refusal::secret));
      (void)stranger.socket.send(stranger.writer.write(handshake::refused, why), Deadline(0));
      return;
    }
    const auto rank = static_cast<int>(hello->terms.rank);
    if (rank <= world_->rank() || rank >= world_->size() || links_.contains(rank)) return;
    if (stranger.socket.send(
            stranger.writer.write(handshake::welcome, hello->terms.server_proof(job)), Deadline(0)))
      links_.emplace(rank, std::move(stranger.socket));
  }

  ProcessWorld* world_;
  SocketMeshOptions options_;
  std::string start_;
  Socket listener_;
  std::list<Stranger> strangers_;
  std::map<int, Socket> links_;
};

}  // namespace detail

/// Collective over the ranks of the world: the connections to the others, by their rank. Throws Error where one cannot be
/// made, and Aborted where the world ends meanwhile.
[[nodiscard]] inline std::map<int, Socket> connect_mesh(ProcessWorld& world,
                                                        const SocketMeshOptions& options) {
  return detail::SocketMesh(world, options).connect();
}

}  // namespace dhp
