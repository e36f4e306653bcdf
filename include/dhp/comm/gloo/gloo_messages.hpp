// GlooMessages sends messages over Gloo, in unbound buffers: another thread can abort a wait for one.
#pragma once

#include <dhp/comm/messages/messages.hpp>
#include <dhp/comm/rendezvous/address.hpp>
#include <dhp/comm/watch/process_watchdog.hpp>
#include <dhp/core/fields.hpp>

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace dhp::detail {

/// While this object lives, writing to a broken connection fails in this thread instead of raising SIGPIPE.
class NoPipeSignal : NonCopyable {
 public:
  NoPipeSignal() {
    sigset_t pending{};
    ::sigpending(&pending);
    was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoPipeSignal() {
    constexpr timespec at_once{};
    if (!was_pending_)
      while (::sigtimedwait(&pipe_, nullptr, &at_once) == SIGPIPE) {  // discards pending SIGPIPEs
      }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_{}, before_{};
  bool was_pending_ = false;
};

/// Lets Gloo use the job's store. A wait throws if the world ends first. All keys get `prefix`, so that several
/// GlooStores can share the job's store.
class GlooStore final : public gloo::rendezvous::Store {
 public:
  GlooStore(std::shared_ptr<ProcessWatchdog> watchdog, std::string prefix)
      : watchdog_(std::move(watchdog)), prefix_(std::move(prefix)) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    watchdog_->store().set(prefix_ + key, std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    const auto value = watchdog_->get(prefix_ + key);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const auto& key : keys) static_cast<void>(get(key));
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);
  }

 private:
  std::shared_ptr<ProcessWatchdog> watchdog_;
  std::string prefix_;
};

/// Connects all ranks of a Gloo context, which meet in the store. Newer versions of Gloo share its ownership.
inline void connect_all(auto& context, const std::shared_ptr<GlooStore>& store,
                        std::shared_ptr<gloo::transport::Device>& device) {
  if constexpr (requires { context.connectFullMesh(store, device); }) {
    context.connectFullMesh(store, device);
  } else {
    context.connectFullMesh(*store, device);
  }
}

/// Finds ranks that cannot be reached: Gloo itself reports no error while a firewall blocks its connections. Each rank
/// listens for the connection attempts of others, and need not answer them.
class Reach {
 public:
  Reach(ProcessWatchdog& watchdog, const std::string& address)
      : watchdog_(watchdog), address_(address), listener_(listening_at(address)) {
    const HostPort here{address_, listener_.own_end().port};
    watchdog_.store().set(concat("reach/", watchdog_.rank()),
                          Fields::written(std::pair(here, host_name())));
  }
  /// Tries to reach one rank at each address. If one does not answer within limit_s, tells all ranks by the key
  /// "unreached/<this rank>/<that rank>", and throws NotConnected.
  void check_all(double limit_s) {
    std::set<std::string> known{address_};
    for (const auto& [key, value] : watchdog_.store().list("reach/")) {
      const auto [at, host] = Fields::parsed<std::pair<HostPort, std::string>>(value).value();
      if (!known.insert(at.host).second) continue;
      // A rank that is connected, or has ended, does not listen any more.
      if (Socket::connected(at, Deadline(limit_s)) || errno == ECONNREFUSED) continue;
      const int problem = errno;
      watchdog_.check_alive();
      const auto rank = key.substr(key.find('/') + 1);
      watchdog_.store().set(concat("unreached/", watchdog_.rank(), "/", rank), "");
      throw NotConnected(concat("rank ", watchdog_.rank(), " (host ", host_name(),
                                ") cannot reach rank ", rank, " (host ", host, ") at ", at.host,
                                ": ", std::strerror(problem),
                                "; ranks need every port of each other: open the firewall, or "
                                "choose the interface of another network"));
    }
  }

 private:
  ProcessWatchdog& watchdog_;
  std::string address_;
  Socket listener_;
};

class GlooMessages final : public Messages {
 public:
  /// Connects all ranks of the world; this rank listens at `address`, an address of its machine. Throws NotConnected on
  /// failure, or Aborted if the world ends first. Collective.
  GlooMessages(const std::shared_ptr<ProcessWatchdog>& watchdog, const std::string& address)
      : context_(std::make_shared<Context>(watchdog)) {
    // Gloo's own error for a bad address is hard to read, and Gloo then leaks its resources.
    Reach reach(*watchdog, address);
    // Gloo waits for a lost rank until Gloo's own limit. If the world ends earlier, its reason is the better error, so
    // a separate thread connects and is left behind. It shares ownership of its data, and ends at Gloo's limit.
    const auto outcome = std::make_shared<Outcome>();
    const double limit_s = watchdog->deadlines()->limit_s();
    // Gloo takes up to five times its time limit to connect. That should be a little longer than the world's limit.
    const std::chrono::duration<double> fifth(limit_s / 5 + 1);
    const auto gives_up =
        limit_s > 0 ? std::chrono::duration_cast<std::chrono::milliseconds>(fifth) : forever;
    std::thread([context = context_, watchdog, address, outcome, gives_up] {
      const NoPipeSignal quiet;  // the thread that Gloo starts inherits the blocked signal
      try {
        gloo::transport::tcp::attr where;
        where.hostname = address;
        auto device = gloo::transport::tcp::CreateDevice(where);
        context->description = concat("Gloo (", device->str(), ")");
        context->gloo.setTimeout(gives_up);
        connect_all(context->gloo, std::make_shared<GlooStore>(watchdog, "gloo/"), device);
      } catch (const std::exception& error) {
        outcome->problem = error.what();
      }
      outcome->known = true;
    }).detach();
    const double quiet_s = limit_s > 0 ? std::min(10.0, limit_s / 3) : 10, tries_s = 0.8 * quiet_s;
    Deadline quiet(quiet_s);
    watchdog->wait_until(
        [&] {
          if (!outcome->known && quiet.passed()) {
            reach.check_all(tries_s);
            quiet = Deadline(quiet_s);
          }
          return outcome->known.load();
        },
        [&] { return concat("rank ", watchdog->rank(), " connects to the others"); });
    watchdog->check_alive();
    auto problem = outcome->problem;
    if (problem.empty()) return;
    if (const auto at = problem.find("] "); problem.starts_with('[') && at != problem.npos)
      problem.erase(0, at + 2);  // a line of Gloo's source
    reach.check_all(tries_s);
    throw NotConnected(
        concat("rank ", watchdog->rank(), " cannot connect to the other ranks by Gloo: ", problem,
               problem.starts_with("connect ")
                   ? concat("; this one is at ", address, ": choose an interface that all reach")
                   : "; for each of them it needs a port and a file descriptor (ulimit -n)"));
  }

  [[nodiscard]] Handle send(const std::byte* data, std::size_t bytes, Peer to, std::uint64_t tag,
                            std::shared_ptr<const void> owner = {}) override {
    // Gloo has one buffer type for both directions, and does not write to a buffer that it sends.
    return std::make_unique<GlooTransfer>(context_, const_cast<std::byte*>(data), bytes, to, tag,
                                          true, std::move(owner));
  }
  [[nodiscard]] Handle receive(std::byte* data, std::size_t bytes, Peer from,
                               std::uint64_t tag) override {
    return std::make_unique<GlooTransfer>(context_, data, bytes, from, tag, false, nullptr);
  }
  /// Each message synchronizes threads on both sides, so few long messages are faster than many short ones.
  [[nodiscard]] std::size_t chunk_bytes() const override { return std::size_t{1} << 23; }
  [[nodiscard]] std::string description() const override { return context_->description; }

 private:
  using Buffer = gloo::transport::UnboundBuffer;
  // Gloo breaks all connections of a rank when a wait passes Gloo's limit, so waits get a limit that they never reach.
  static constexpr auto forever = std::chrono::milliseconds(std::chrono::hours(24 * 365));

  struct Outcome {
    std::string problem{};  // why connecting failed; empty if it did not
    std::atomic<bool> known{false};
  };
  /// The buffers with a wait in progress. The end of the world aborts their waits.
  struct Waits {
    void end() {
      const std::lock_guard lock(mutex);
      ended = true;
      for (auto* buffer : buffers) {
        buffer->abortWaitSend();
        buffer->abortWaitRecv();
      }
    }
    std::mutex mutex{};
    std::set<Buffer*> buffers{};
    bool ended = false;
  };
  /// A wait in progress, if the world has not ended.
  struct Waiting : NonCopyable {
    Waiting(Waits& among, Buffer* of) : waits(among), buffer(of) {
      const std::lock_guard lock(waits.mutex);
      begun = !waits.ended && waits.buffers.insert(buffer).second;
    }
    ~Waiting() {
      const std::lock_guard lock(waits.mutex);
      waits.buffers.erase(buffer);
    }
    Waits& waits;
    Buffer* buffer;
    bool begun = false;
  };
  /// The connections, which pending transfers share.
  struct Context {
    explicit Context(const std::shared_ptr<ProcessWatchdog>& of)
        : watchdog(of),
          gloo(of->rank(), of->size()),
          at_end(of->on_change([known = waits, latch = of.get()] {
            if (latch->ended()) known->end();
          })) {}
    std::shared_ptr<ProcessWatchdog> watchdog;
    std::string description{};
    gloo::rendezvous::Context gloo;
    std::shared_ptr<Waits> waits = std::make_shared<Waits>();
    std::shared_ptr<void> at_end;
  };

  class GlooTransfer final : public Transfer {
   public:
    GlooTransfer(std::shared_ptr<Context> context, std::byte* data, std::size_t bytes, Peer peer,
                 std::uint64_t tag, bool sends, std::shared_ptr<const void> owner)
        : context_(std::move(context)),
          owner_(std::move(owner)),
          buffer_(context_->gloo.createUnboundBuffer(data, bytes)),
          peer_(peer),
          sends_(sends) {
      guarded([&] {
        if (sends_) buffer_->send(peer_.world_rank, tag);
        else buffer_->recv(peer_.world_rank, tag);
      });
    }
    void wait() override {
      bool done = false;
      if (const Waiting waiting(*context_->waits, buffer_.get()); waiting.begun)
        guarded([&] { done = sends_ ? buffer_->waitSend(forever) : buffer_->waitRecv(forever); });
      if (done) return;
      context_->watchdog->check_alive();
      throw PeerLost(peer_, "its connection has ended");
    }

   private:
    void guarded(auto action) {
      const NoPipeSignal quiet;
      try {
        action();
      } catch (const std::exception& error) {
        throw PeerLost(peer_, error.what());
      }
    }
    std::shared_ptr<Context> context_;
    std::shared_ptr<const void> owner_;
    std::unique_ptr<Buffer> buffer_;
    Peer peer_;
    bool sends_;
  };

  std::shared_ptr<Context> context_;
};

}  // namespace dhp::detail
