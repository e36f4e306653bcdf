// TcpStore: the store of a job as ranks other than 0 have it: a connection to the TcpStoreServer of rank 0. That may
// start later, its name may not be known yet, and other jobs may have taken the first ports: the client looks for
// the store of its job until a time limit. A connection that breaks is not made again.
#pragma once

#include <dhp/comm/tcp_store_server.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace dhp {

struct TcpStoreOptions {
  std::string host = "127.0.0.1";  ///< of rank 0: an address or a name
  int port = 0;                    ///< the first that the server may have
  int ports = 32;                  ///< how many it may have tried
  int rank = 1;                    ///< of this process
  std::string job{};
  std::string secret{};    ///< empty: none, which is for addresses that only this machine can reach
  double connect_s = 300;  ///< how long to look for the store
  double refused_s = 2;    ///< how long to go on when a store of this job has refused this rank
  double timeout_s = 10;   ///< of every operation afterwards
};

class TcpStore final : public Store {
 public:
  using Options = TcpStoreOptions;

  /// Throws Error where there is no store of this job within connect_s, or it refuses this rank.
  explicit TcpStore(Options options) : options_(std::move(options)) { connect(); }

  [[nodiscard]] std::string description() const override { return at(port_); }
  [[nodiscard]] std::string own_address() override {
    const std::lock_guard lock(mutex_);
    return host_of(SocketAddress::of(socket_.fd(), false));
  }

  void set(const std::string& key, const std::string& value) override {
    check_key(key);
    check_value(key, value);
    std::string payload;
    append_field(payload, key);
    append_field(payload, value);
    (void)ask(store_request::set, payload, store_answer::done);
  }
  [[nodiscard]] std::optional<std::string> find(const std::string& key) override {
    check_key(key);
    std::string payload;
    append_field(payload, key);
    auto answer = ask(store_request::find, payload, store_answer::value, store_answer::none);
    if (answer.type == store_answer::none) return std::nullopt;
    return std::move(answer.payload);
  }
  [[nodiscard]] Entries list(const std::string& prefix) override {
    Entries entries;
    for (bool more = true; more;) {
      std::string payload;
      append_field(payload, prefix);
      append_field(payload, entries.empty() ? std::string() : entries.back().first);
      const auto answer = ask(store_request::list, payload, store_answer::entries);
      FieldReader fields(answer.payload);
      more = fields.number().value_or(0) == 1;
      while (!fields.empty()) {
        auto key = fields.field(), value = fields.field();
        check(key && value, "rank ", options_.rank, " cannot read what the ", description(),
              " lists; do all ranks run the same program?");
        entries.emplace_back(std::move(*key), std::move(*value));
      }
    }
    return entries;
  }
  void remove(const std::string& key) override {
    check_key(key);
    std::string payload;
    append_field(payload, key);
    (void)ask(store_request::remove, payload, store_answer::done);
  }

 private:
  [[nodiscard]] std::string at(int port) const {
    return concat("TCP store at ", host_and_port(options_.host, port));
  }

  /// One request, and its answer of one of two types.
  Frame ask(std::uint8_t type, const std::string& payload, std::uint8_t expected,
            std::uint8_t or_else = 0) {
    const std::lock_guard lock(mutex_);
    if (!lost_.empty()) throw StoreLost(lost_);
    const Deadline deadline(options_.timeout_s);
    if (!socket_.send(writer_.write(type, payload), deadline)) lose(std::strerror(errno));
    auto answer = read(socket_, reader_, deadline);
    if (!answer)
      lose(!reader_.refusal().empty() ? reader_.refusal()
           : errno == ETIMEDOUT
               ? concat("it has not answered within ", options_.timeout_s, " s")
               : concat("it has closed the connection (", std::strerror(errno), ")"));
    if (answer->type == store_answer::failed) throw Error(answer->payload);
    if (answer->type != expected && answer->type != or_else) lose("its answer makes no sense");
    return std::move(*answer);
  }
  [[noreturn]] void lose(const std::string& why) {
    socket_.close();
    lost_ = concat("rank ", options_.rank, " has lost the ", description(), ": ", why,
                   "; has rank 0, which holds it, ended or been stopped?");
    throw StoreLost(lost_);
  }
  /// None: errno, or the reader's refusal, says why.
  [[nodiscard]] static std::optional<Frame> read(const Socket& socket, FrameReader& reader,
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

  /// What a look for the store has come to, the more telling the later.
  enum class Seen { silence, nobody, no_store, other_job, impostor, refused, welcome };

  void connect() {
    check(options_.port > 0 && options_.port < 65536, "rank ", options_.rank,
          " looks for a store at port ", options_.port, "; ports go from 1 to 65535");
    const Deadline deadline(options_.connect_s);
    std::optional<Deadline> patience;  // since a store of this job has refused us
    double pause_s = 0.01, attempt_s = 0.5;
    for (;;) {
      std::string why;
      const auto seen = look(why, attempt_s, deadline);
      if (seen == Seen::welcome) return;
      if (seen == Seen::refused && !patience) patience.emplace(options_.refused_s);
      if (seen == Seen::refused && (patience->passed() || deadline.passed())) fail(why);
      if (deadline.passed())
        fail("rank ", options_.rank, " has found no store of job \"", options_.job, "\" at ",
             host_and_port(options_.host, options_.port), " within ", options_.connect_s,
             " s: ", why,
             "; is rank 0 running there, not at its end already, and with the same DHP_JOB?");
      const double left_s = std::max(0.0, deadline.left_s());
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(pause_s, left_s)));
      pause_s = std::min(2 * pause_s, 0.5);
      attempt_s = std::min(2 * attempt_s, 8.0);
    }
  }
  /// Once over all addresses and ports.
  Seen look(std::string& why, double attempt_s, const Deadline& deadline) {
    auto best = Seen::silence;
    auto addresses = resolve(options_.host, why);
    const auto is_open = [](const SocketAddress& address) { return !address.loopback(); };
    if (options_.secret.empty() && !addresses.empty()) {
      addresses.erase(std::remove_if(addresses.begin(), addresses.end(), is_open), addresses.end());
      check(!addresses.empty(), "rank ", options_.rank, " does not look for a store at ",
            options_.host,
            ", which others can reach, without a secret: give all ranks the same "
            "DHP_JOB_SECRET or DHP_JOB_SECRET_FILE");
    }
    for (auto address : addresses) {
      const int ports = std::min(options_.ports, 65536 - options_.port);
      for (int i = 0; i < ports; ++i) {
        address.set_port(options_.port + i);
        std::string here;
        const auto seen =
            attempt(address, here, Deadline(std::min(attempt_s, deadline.left_s() + 0.05)));
        if (seen > best || why.empty()) why = here;
        best = std::max(best, seen);
        if (seen == Seen::welcome) return seen;
        if (seen == Seen::silence || deadline.passed()) break;  // nor would the next port answer
      }
    }
    return best;
  }
  Seen attempt(const SocketAddress& address, std::string& why, const Deadline& deadline) {
    auto socket = Socket::of_family(address.family());
    if (!socket || !socket.connect(address, deadline)) {
      const int problem = errno;
      why = concat("nothing answers (", std::strerror(problem), ")");
      return problem == ETIMEDOUT ? Seen::silence : Seen::nobody;
    }
    socket.prepare();
    why = "what listens there is no store, or does not answer";
    FrameReader reader(handshake::longest_payload);
    FrameWriter writer;
    const auto hello = read(socket, reader, deadline);
    if (!hello || hello->type != handshake::server_hello ||
        hello->payload.size() != handshake::nonce_bytes)
      return Seen::no_store;
    const handshake::Job job{options_.job, options_.secret};
    const handshake::Terms terms{hello->payload, nonce(handshake::nonce_bytes),
                                 static_cast<std::uint32_t>(options_.rank)};
    if (!socket.send(writer.write(handshake::client_hello, write_client_hello(terms, job)),
                     deadline))
      return Seen::no_store;
    const auto verdict = read(socket, reader, deadline);
    if (!verdict) return Seen::no_store;
    if (verdict->type == handshake::refused) return refusal(address.port(), verdict->payload, why);
    why = concat("the ", at(address.port()), " cannot prove that it belongs to this job");
    if (verdict->type != handshake::welcome ||
        !equal_in_constant_time(verdict->payload, terms.server_proof(job)))
      return Seen::impostor;
    const auto key = terms.session_key(job);
    reader_.seal(key, FrameSide::server, longest_store_payload);
    writer_.seal(key, FrameSide::client);
    socket_ = std::move(socket);
    port_ = address.port();
    return Seen::welcome;
  }
  Seen refusal(int port, const std::string& reason, std::string& why) const {
    using handshake::Refusal;
    const auto refusal = static_cast<Refusal>(reason.size() == 1 ? reason[0] : '?');
    why = concat("the ", at(port), " belongs to another job");
    if (refusal == Refusal::job) return Seen::other_job;
    why = concat("the ", at(port), " refuses rank ", options_.rank, ": ");
    switch (refusal) {
      case Refusal::secret:
        why +=
            "its secret is not the job's; set DHP_JOB_SECRET, or DHP_JOB_SECRET_FILE, to the same "
            "on all ranks";
        break;
      case Refusal::connected:
        why +=
            "another process is that rank already; give each process a rank of its own, and each "
            "start a DHP_JOB of its own";
        break;
      case Refusal::rank:
        why += "the world of rank 0 is smaller; start all ranks with the same number of ranks";
        break;
      case Refusal::full: why += "it has as many clients as it can have"; break;
      default: why += "for a reason that this version does not know"; break;
    }
    return Seen::refused;
  }

  Options options_;
  int port_ = 0;
  std::mutex mutex_;
  Socket socket_;
  FrameReader reader_{handshake::longest_payload};
  FrameWriter writer_{};
  std::string lost_{};  // why, in a sentence
};

}  // namespace dhp
