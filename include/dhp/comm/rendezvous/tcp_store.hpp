// TcpStore is a job's store on ranks other than 0: a connection to rank 0's TcpStoreServer. The server may start later,
// its name may not resolve yet, and other jobs may have its first ports. TcpStore does not reconnect.
#pragma once

#include <dhp/comm/rendezvous/tcp_store_server.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace dhp::detail {

class TcpStore final : public KeyValueStore {
 public:
  /// Throws Error if there is no store of this job within timeout_s, or if the store refuses this rank.
  explicit TcpStore(RendezvousOptions options) : options_(std::move(options)) { connect(); }

  /// Looks for a store of this job at the first `ports` ports. Returns its description; an empty text if there is none.
  [[nodiscard]] static std::string first_of(RendezvousOptions options, int ports) {
    options.ports = ports;
    TcpStore store(std::move(options), Unconnected{});
    const double limit_s = store.options_.refused_s;
    std::string why;
    auto found = Found::refused;  // tries again after a refusal, which may be temporary
    for (int tries = 0; ports > 0 && found == Found::refused && tries < 5; ++tries) {
      if (tries > 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      found = store.look(why, limit_s, Deadline(limit_s));
    }
    return found == Found::store ? store.description() : std::string();
  }

  [[nodiscard]] std::string description() const override { return at(port_); }
  [[nodiscard]] std::string own_address() override {
    const std::lock_guard lock(mutex_);
    return socket_.own_end().host;
  }

 private:
  struct Unconnected {};
  TcpStore(RendezvousOptions options, Unconnected) : options_(std::move(options)) {}

  [[nodiscard]] std::string name() const { return options_.name_of(options_.rank); }
  [[nodiscard]] std::string at(int port) const {
    return concat("TCP store at ", HostPort{options_.master, port});
  }

  [[nodiscard]] Answer answer(const Request& request) override {
    const std::lock_guard lock(mutex_);
    if (!lost_.empty()) throw KeyValueStoreLost(lost_);
    const Deadline deadline(options_.operation_timeout_s);
    if (!socket_.send(write_frame(Fields::written(request)), deadline)) lose(std::strerror(errno));
    const auto frame = read(socket_, reader_, deadline);
    if (!frame)
      lose(!reader_.refusal().empty() ? reader_.refusal()
           : errno == ETIMEDOUT
               ? concat("it has not answered within ", options_.operation_timeout_s, " s")
               : concat("it has closed the connection (", std::strerror(errno), ")"));
    auto answer = Fields::parsed<Answer>(*frame);
    if (!answer) lose("its answer makes no sense");
    check(answer->error.empty(), answer->error);
    return std::move(*answer);
  }
  [[noreturn]] void lose(const std::string& why) {
    socket_.close();
    lost_ = concat(name(), " has lost the ", description(), ": ", why,
                   "; has rank 0, which holds it, ended or been stopped?");
    throw KeyValueStoreLost(lost_);
  }
  /// Returns nullopt on failure, with the reason in reader.refusal() or, if that is empty, in errno.
  [[nodiscard]] static std::optional<std::string> read(const Socket& socket, FrameReader& reader,
                                                       const Deadline& deadline) {
    std::string bytes;
    for (;;) {
      if (auto frame = reader.next()) return frame;
      if (!reader.refusal().empty()) return std::nullopt;
      bytes.resize(std::size_t{1} << 16);
      if (!socket.receive(bytes, deadline)) return std::nullopt;
      reader.feed(bytes);
    }
  }

  /// The result of an attempt, from worst to best. The final error describes the best one.
  enum class Found { silence, nobody, no_store, other_job, refused, store };

  void connect() {
    check(options_.port > 0 && options_.port < 65536, name(), " looks for a store at port ",
          options_.port, "; ports go from 1 to 65535");
    const Deadline deadline(options_.timeout_s);
    std::optional<Deadline> patience;  // starts when a store first refuses this rank
    double pause_s = 0.01, attempt_s = 0.5;
    for (bool logged = !options_.log;;) {
      std::string why;
      const auto found = look(why, attempt_s, deadline);
      if (found == Found::store) return;
      if (found == Found::refused && !patience) patience.emplace(options_.refused_s);
      if (found == Found::refused && (patience->passed() || deadline.passed())) fail(why);
      if (deadline.passed())
        fail(or_unset(
            concat(name(), " has found no store of job \"", options_.job, "\" at ",
                   HostPort{options_.master, options_.port}, " within ", options_.timeout_s,
                   " s: ", why,
                   "; start rank 0 there, with the same DHP_JOB, or without one the same port"),
            options_.variables));
      const double left_s = std::max(0.0, deadline.left_s());
      if (left_s < options_.timeout_s - options_.quiet_s && !std::exchange(logged, true))
        options_.log(concat("waits for a store of job \"", options_.job, "\" at ",
                            HostPort{options_.master, options_.port}, ": ", why));
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(pause_s, left_s)));
      pause_s = std::min(2 * pause_s, 0.5);
      attempt_s = std::min(2 * attempt_s, 8.0);
    }
  }
  /// Tries all addresses and ports once.
  Found look(std::string& why, double attempt_s, const Deadline& deadline) {
    auto best = Found::silence;
    auto addresses = resolve({options_.master, options_.port}, why);
    if (options_.secret.empty() && !addresses.empty()) {
      std::erase_if(addresses, [](const HostPort& address) { return !address.loopback(); });
      check(!addresses.empty(), name(), " does not look for a store at ", options_.master,
            ", which others can reach, without a secret: give all ranks the same DHP_JOB_SECRET or "
            "DHP_JOB_SECRET_FILE");
    }
    const int ports = std::min(options_.ports, 65536 - options_.port);
    int mute = 0;  // ports that accept but do not answer; each makes waits shorter
    for (auto address : addresses)
      for (const int end = address.port + ports; address.port < end; ++address.port) {
        std::string here;
        const Deadline own(std::min(attempt_s / (1 + mute), deadline.left_s() + 0.05));
        const auto found = attempt(address, here, own);
        if (found == Found::no_store && own.passed()) ++mute;
        if (found > best || why.empty()) why = here;
        best = std::max(best, found);
        if (found == Found::store) return found;
        if (found == Found::silence || deadline.passed()) break;  // other ports are silent, too
      }
    return best;
  }
  Found attempt(const HostPort& address, std::string& why, const Deadline& deadline) {
    auto socket = Socket::connected(address, deadline);
    if (!socket) {
      const int problem = errno;
      why = concat("nothing answers (", std::strerror(problem), ")");
      return problem == ETIMEDOUT ? Found::silence : Found::nobody;
    }
    socket.prepare();
    why = "the program that listens there is no store, or does not answer";
    FrameReader reader(handshake::longest_payload);
    const auto server_nonce = read(socket, reader, deadline);
    if (!server_nonce || server_nonce->size() != handshake::nonce_bytes) return Found::no_store;
    handshake::Hello mine{nonce(handshake::nonce_bytes), static_cast<std::uint32_t>(options_.rank),
                          options_.job};
    mine.proof = mine.proof_of("client", *server_nonce, options_.secret);
    if (!socket.send(write_frame(Fields::written(mine)), deadline)) return Found::no_store;
    const auto frame = read(socket, reader, deadline);
    const auto answer = frame ? Fields::parsed<handshake::Welcome>(*frame) : std::nullopt;
    if (!answer) return Found::no_store;
    if (answer->refusal != handshake::Refusal::none)
      return refusal(address.port, answer->refusal, why);
    why = concat("the ", at(address.port), " cannot prove that it belongs to this job");
    if (!equal_in_constant_time(answer->proof,
                                mine.proof_of("server", *server_nonce, options_.secret)))
      return Found::other_job;
    socket_ = std::move(socket);
    port_ = address.port;
    return Found::store;
  }
  Found refusal(int port, handshake::Refusal refusal, std::string& why) const {
    using handshake::Refusal;
    why = concat("the ", at(port), " belongs to another job");
    if (refusal == Refusal::job) return Found::other_job;
    why = concat("the ", at(port), " refuses ", name(), ": ",
                 refusal == Refusal::secret ? "its secret is not the job's; set DHP_JOB_SECRET, or "
                                              "DHP_JOB_SECRET_FILE, to the same on all ranks"
                 : refusal == Refusal::connected
                     ? "another process is that rank already; give each process a rank of its own, "
                       "and each start a DHP_JOB of its own"
                 : refusal == Refusal::rank && options_.size == 0
                     ? "the job of rank 0 is not elastic; start all ranks as elastic, or none"
                 : refusal == Refusal::rank ? "rank 0 was started with a smaller world size; start "
                                              "all ranks with the same number of ranks"
                                            : "for a reason that this version does not know");
    return Found::refused;
  }

  RendezvousOptions options_;
  int port_ = 0;
  std::mutex mutex_;
  Socket socket_;
  FrameReader reader_{longest_answer_bytes};
  std::string lost_{};  // why the store is lost, as a sentence; empty if it is not
};

}  // namespace dhp::detail
