// TcpStoreServer is a job's store in rank 0's memory. A thread of its own serves the other ranks over TCP. It refuses
// clients that do not prove knowledge of the job's secret.
#pragma once

#include <dhp/comm/rendezvous/handshake.hpp>
#include <dhp/comm/rendezvous/key_value_store.hpp>
#include <dhp/comm/rendezvous/launcher.hpp>

#include <sys/eventfd.h>

#include <algorithm>
#include <exception>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace dhp::detail {

/// Limits of payloads. One answer may list all keys of a job.
inline constexpr std::size_t longest_request_bytes = std::size_t{1} << 21;
inline constexpr std::size_t longest_answer_bytes = std::size_t{1} << 28;

/// Returns where rank 0 listens. host: its name for others, which resolves to `found` here. A machine's own name often
/// resolves to loopback on itself; with a secret, rank 0 then listens at all its addresses.
[[nodiscard]] inline std::vector<HostPort> addresses_to_listen(const HostPort& host,
                                                               std::vector<HostPort> found,
                                                               bool secret) {
  const auto loopback = [](const HostPort& address) { return address.loopback(); };
  if (!secret || !is_own_name(host.host) || std::none_of(found.begin(), found.end(), loopback))
    return found;
  return {{"::", host.port}, {"0.0.0.0", host.port}};  // "::" serves IPv4, too
}

class TcpStoreServer final : public KeyValueStore {
 public:
  explicit TcpStoreServer(RendezvousOptions options)
      : options_(std::move(options)), host_{options_.master, options_.port} {
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

  [[nodiscard]] int port() const { return host_.port; }
  [[nodiscard]] std::string description() const override {
    return concat("TCP store at ", host_, only_here_);
  }
  [[nodiscard]] bool is_held_here() const override { return true; }
  [[nodiscard]] std::string own_address() override {
    const std::lock_guard lock(mutex_);
    return reached_.host;
  }

 private:
  [[nodiscard]] Answer answer(const Request& request) override {
    const std::lock_guard lock(mutex_);
    return table_.answer(request);
  }

  struct Client {
    Socket socket;
    HostPort address;
    Deadline patience;  // time limit for authentication
    std::string server_nonce = nonce(handshake::nonce_bytes);
    FrameReader reader{handshake::longest_payload};
    std::string out{};   // bytes to send before any more are read
    int rank = -1;       // -1 until the client is authenticated
    bool asked = false;  // has used the store; otherwise its end does not set left/N
    bool closing = false, ended = false;
  };

  void listen() {
    const bool secret = !options_.secret.empty();
    std::string problem;
    auto found = resolve(host_, problem);
    for (auto address : addresses_to_listen(host_, std::move(found), secret)) {
      if (!address.loopback() && !secret) {
        problem =
            "others can reach that address, so the job needs a secret: give all ranks the same "
            "DHP_JOB_SECRET or DHP_JOB_SECRET_FILE";
        continue;
      }
      const int ports = host_.port == 0 ? 1 : std::min(options_.ports, 65536 - host_.port);
      for (const int last = address.port + ports - 1; address.port <= last; ++address.port) {
        listener_ = Socket::listening(address);
        if (listener_) {
          host_.port = listener_.own_end().port;
          if (!secret && is_own_name(host_.host))
            only_here_ = concat(" (", address.host, " for this machine alone: it has no secret)");
          return;
        }
        problem = std::strerror(errno);
        if (errno != EADDRINUSE) {
          problem += "; it has to be an address of the machine of rank 0";
          break;
        }
        if (ports > 1) problem += concat(", and so are the ", ports - 1, " ports after it");
        problem += "; choose another port for all ranks";
      }
    }
    fail(or_unset(concat("rank 0 cannot listen at ", host_, ": ", problem), options_.variables));
  }

  void serve() {
    std::vector<pollfd> polled;
    for (;;) {
      polled.assign({{wake_.fd(), POLLIN, 0}, {listener_.fd(), POLLIN, 0}});
      for (const auto& client : clients_)
        polled.push_back(
            {client.socket.fd(), static_cast<short>(client.out.empty() ? POLLIN : POLLOUT), 0});
      (void)::poll(polled.data(), polled.size(), unauthenticated() > 0 ? 50 : -1);
      if (polled[0].revents != 0) return;
      std::size_t at = 2;
      for (auto& client : clients_) {
        const bool ready = polled[at++].revents != 0;
        try {
          if (ready) attend(client);
          if (client.rank < 0 && !client.ended && client.patience.passed())
            end(client, concat("it has not said who it is within ", options_.silence_s, " s"));
        } catch (const std::exception& error) {  // an error of this client alone, such as no memory
          end(client, error.what());
        }
      }
      clients_.remove_if([this](const Client& client) {
        if (client.ended && client.asked) set(concat(left_prefix, client.rank), "");
        return client.ended;
      });
      if (polled[1].revents != 0) accept();
    }
  }
  [[nodiscard]] static bool is_unauthenticated(const Client& client) { return client.rank < 0; }
  [[nodiscard]] std::size_t unauthenticated() const {
    return as_size(std::count_if(clients_.begin(), clients_.end(), is_unauthenticated));
  }

  void accept() {
    for (int burst = 0; burst < 16; ++burst) {
      Socket socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      const bool full = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (!socket && !full) return;
      if (!socket || unauthenticated() >= options_.max_unauthenticated) end_oldest();
      if (!socket) continue;
      socket.prepare();
      const auto address = socket.other_end();
      auto& client =
          clients_.emplace_back(Client{std::move(socket), address, Deadline(options_.silence_s)});
      send(client, write_frame(client.server_nonce));
    }
  }
  /// Ends the oldest unauthenticated connection.
  void end_oldest() {
    const auto oldest = std::find_if(clients_.begin(), clients_.end(), is_unauthenticated);
    if (oldest == clients_.end())  // the system allows no more connections
      return std::this_thread::sleep_for(std::chrono::milliseconds(5));
    end(*oldest, "newer connections need its place");
    clients_.erase(oldest);
  }
  void end(Client& client, const std::string& why) {
    client.ended = true;
    if (!client.closing) report(client, why);
  }
  void report(const Client& client, const std::string& why) {
    if (!options_.log || logged_ >= max_logged) return;
    const auto who = client.rank < 0 ? std::string() : concat(", ", options_.name_of(client.rank));
    const auto* const last = ++logged_ == max_logged ? "; no more of these are reported" : "";
    options_.log(concat("the ", description(), " closes a connection from ", client.address, who,
                        ": ", why, last));
  }

  void attend(Client& client) {
    if (!client.out.empty()) {
      flush(client);
    } else {
      std::string bytes(std::size_t{1} << 16, '\0');
      if (client.socket.receive(bytes, Deadline(0))) client.reader.feed(bytes);
      else if (errno != ETIMEDOUT) client.ended = true;
    }
    while (!client.ended && client.out.empty()) {
      const auto frame = client.reader.next();
      if (!client.reader.refusal().empty()) end(client, client.reader.refusal());
      if (!frame) return;
      client.asked = client.rank >= 0;
      if (client.rank < 0) authenticate(client, *frame);
      else if (const auto result = reply(*frame)) send(client, *result);
      else end(client, "its request makes no sense");
    }
  }
  void send(Client& client, const std::string& frame) {
    client.out += frame;
    flush(client);
  }
  void flush(Client& client) {
    const auto sent =
        ::send(client.socket.fd(), client.out.data(), client.out.size(), MSG_NOSIGNAL);
    if (sent > 0) client.out.erase(0, as_size(sent));
    if (sent < 0 && errno != EAGAIN && errno != EINTR) client.ended = true;
    if (client.out.empty() && client.closing) client.ended = true;
  }

  void authenticate(Client& client, const std::string& frame) {
    using handshake::Refusal;
    const auto hello = Fields::parsed<handshake::Hello>(frame);
    if (!hello) return end(client, "its first frame is no hello");
    const auto proof_of = [&](const char* side) {
      return hello->proof_of(side, client.server_nonce, options_.secret);
    };
    const auto rank = static_cast<std::int64_t>(hello->rank);
    const auto ranks = options_.size == 0 ? std::int64_t{1} << 31 : options_.size;
    const auto is_rank = [&](const Client& other) { return other.rank == rank && !other.ended; };
    if (hello->job != options_.job)
      return refuse(client, Refusal::job, {});  // it tries other ports
    if (!equal_in_constant_time(hello->proof, proof_of("client")))
      return refuse(client, Refusal::secret,
                    concat("as rank ", rank, " it does not have the secret of the job"));
    if (rank >= ranks)
      return refuse(client, Refusal::rank, concat("there is no rank ", rank, " among ", ranks));
    if (std::any_of(clients_.begin(), clients_.end(), is_rank))
      return refuse(client, Refusal::connected,
                    concat(options_.name_of(static_cast<int>(rank)), " is connected already"));
    client.rank = static_cast<int>(rank);
    client.reader.allow(longest_request_bytes);
    note_reached(client.socket.own_end());
    send(client,
         write_frame(Fields::written(handshake::Welcome{Refusal::none, proof_of("server")})));
  }
  void refuse(Client& client, handshake::Refusal refusal, const std::string& why) {
    if (!why.empty()) report(client, why);
    client.closing = true;
    send(client, write_frame(Fields::written(handshake::Welcome{refusal})));
  }
  void note_reached(const HostPort& here) {
    const std::lock_guard lock(mutex_);
    if (reached_.host.empty() || (reached_.loopback() && !here.loopback())) reached_ = here;
  }

  /// Returns nullopt if the frame is no request.
  [[nodiscard]] std::optional<std::string> reply(const std::string& frame) {
    const auto request = Fields::parsed<Request>(frame);
    if (!request || request->kind > Request::Kind::remove) return std::nullopt;
    Answer result;
    try {
      result = ask(*request);
    } catch (const Error& error) {
      result.error = error.sentence();
    }
    return write_frame(Fields::written(std::move(result)));
  }

  static constexpr int max_logged = 100;

  RendezvousOptions options_;
  HostPort host_;
  std::string only_here_{};  // why other machines cannot reach it, for messages
  Socket listener_, wake_;
  std::mutex mutex_;  // guards table_ and reached_
  StoreTable table_;
  HostPort reached_{};           // own end of a connection, preferably from another machine
  std::list<Client> clients_{};  // clients_ and logged_ are used by the serving thread only
  int logged_ = 0;
  std::thread thread_;
};

}  // namespace dhp::detail
