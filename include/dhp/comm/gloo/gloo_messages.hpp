// GlooMessages sends messages over Gloo, in unbound buffers: another thread can abort a wait for one.
#pragma once

#include <dhp/comm/messages/messages.hpp>
#include <dhp/comm/rendezvous/address.hpp>
#include <dhp/comm/watch/process_watchdog.hpp>

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
#include <sstream>
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

/// Finds ranks that cannot be reached: Gloo itself reports no error while a firewall blocks its connections. Each rank
/// listens for the connection attempts of others, and need not answer them.
class Reach {
 public:
  Reach(ProcessWatchdog& watchdog, const std::string& address)
      : watchdog_(watchdog), address_(address), listener_(listening_at(address)) {
    watchdog_.store().set(concat("reach/", watchdog_.rank()),
                          concat(listener_.own_end().port, " ", address_, " ", host_name()));
  }
  /// Tries to reach one rank at each address. If one does not answer within limit_s, tells all ranks by the key
  /// "unreached/<this rank>/<that rank>", and throws NotConnected.
  void check_all(double limit_s) {
    std::set<std::string> known{address_};
    for (const auto& [key, value] : watchdog_.store().list("reach/")) {
      std::istringstream text(value);
      HostPort at;
      std::string host;
      std::getline(text >> at.port >> at.host >> std::ws, host);
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
      : context_(std::make_shared<Context>(watchdog)),
        members_(all_ranks(watchdog->size())),
        id_(0) {
    // Gloo's own error for a bad address is hard to read, and Gloo then leaks its resources.
    Reach reach(*watchdog, address);
    // Gloo waits for a lost rank until Gloo's own limit. So a thread of its own connects, and is left behind if the
    // world ends earlier, with a better reason. It shares ownership of its data, and ends at Gloo's limit.
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
        GlooStore store(watchdog, "gloo/");
        context->gloo.setTimeout(gives_up);
        context->gloo.connectFullMesh(store, device);
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
    throw NotConnected(concat(
        "rank ", watchdog->rank(), " cannot connect to the other ranks by Gloo: ", problem,
        problem.starts_with("connect ")
            ? concat("; this one is at ", address, ": choose the interface of a network of all")
            : "; for each of them it needs a port and a file descriptor (ulimit -n)"));
  }

  [[nodiscard]] Handle send(const std::byte* data, std::size_t bytes, int to, std::uint64_t tag,
                            std::shared_ptr<const void> owner = {}) override {
    // Gloo has one buffer type for both directions, and does not write to a buffer that it sends.
    return std::make_unique<GlooTransfer>(context_, const_cast<std::byte*>(data), bytes, to,
                                          world_rank(to), slot(tag), true, std::move(owner));
  }
  [[nodiscard]] Handle receive(std::byte* data, std::size_t bytes, int from,
                               std::uint64_t tag) override {
    return std::make_unique<GlooTransfer>(context_, data, bytes, from, world_rank(from), slot(tag),
                                          false, nullptr);
  }
  /// Each message synchronizes threads on both sides, so few long messages are faster than many short ones.
  [[nodiscard]] std::size_t chunk_bytes() const override { return std::size_t{1} << 23; }
  [[nodiscard]] std::shared_ptr<Messages> of_part(const std::vector<int>& members, int,
                                                  std::uint32_t id) override {
    auto part = std::shared_ptr<GlooMessages>(new GlooMessages(*this));
    part->id_ = id;
    part->members_.clear();
    for (const int member : members) part->members_.push_back(world_rank(member));
    return part;
  }
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
  /// The connections, shared by the GlooMessages of all groups.
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
    GlooTransfer(std::shared_ptr<Context> context, std::byte* data, std::size_t bytes, int peer,
                 int world_rank, std::uint64_t slot, bool sends, std::shared_ptr<const void> owner)
        : context_(std::move(context)),
          owner_(std::move(owner)),
          buffer_(context_->gloo.createUnboundBuffer(data, bytes)),
          peer_(peer),
          sends_(sends) {
      guarded([&] {
        if (sends_) buffer_->send(world_rank, slot);
        else buffer_->recv(world_rank, slot);
      });
    }
    void wait() override {
      bool done = false;
      if (begin_wait()) {
        try {
          guarded([&] { done = sends_ ? buffer_->waitSend(forever) : buffer_->waitRecv(forever); });
        } catch (...) {
          end_wait();
          throw;
        }
        end_wait();
      }
      if (done) return;
      context_->watchdog->check_alive();
      throw PeerLost(peer_, "its connection has ended");
    }

   private:
    // Returns false if the world has ended.
    [[nodiscard]] bool begin_wait() {
      const std::lock_guard lock(context_->waits->mutex);
      if (!context_->waits->ended) context_->waits->buffers.insert(buffer_.get());
      return !context_->waits->ended;
    }
    void end_wait() {
      const std::lock_guard lock(context_->waits->mutex);
      context_->waits->buffers.erase(buffer_.get());
    }
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
    int peer_;
    bool sends_;
  };

  GlooMessages(const GlooMessages&) = default;
  [[nodiscard]] int world_rank(int rank) const { return members_[as_size(rank)]; }
  // Puts 20 bits of the group's number above the 44 bits of the tag.
  [[nodiscard]] std::uint64_t slot(std::uint64_t tag) const {
    constexpr std::uint64_t mask = (1u << 20) - 1;
    return (id_ & mask) << 44 | tag;
  }

  std::shared_ptr<Context> context_;
  std::vector<int> members_{};  // world ranks of the group
  std::uint64_t id_;            // number of the group
};

}  // namespace dhp::detail
