// Gloo, a library of communication over TCP between processes on CPUs: as a transport for PeerComm.
#pragma once

#include <dhp/comm/no_pipe_signal.hpp>
#include <dhp/comm/peers.hpp>

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

/// The address of this machine that talks to `host` ("127.0.0.1", a name, "::1"): what peers can reach it at.
[[nodiscard]] inline std::string address_towards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.c_str(), "9", &hints, &found);
  check(code == 0, "the host ", host, " cannot be found: ", ::gai_strerror(code));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, ::freeaddrinfo);
  for (const auto* each = list.get(); each != nullptr; each = each->ai_next) {
    const int socket = ::socket(each->ai_family, each->ai_socktype, each->ai_protocol);
    if (socket < 0) continue;
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    // Nothing is sent: a datagram socket is connected by choosing its route.
    const bool known = ::connect(socket, each->ai_addr, each->ai_addrlen) == 0 &&
                       ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) == 0;
    ::close(socket);
    char text[NI_MAXHOST];
    if (known && ::getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text, sizeof text,
                               nullptr, 0, NI_NUMERICHOST) == 0)
      return text;
  }
  fail("this machine has no route to ", host, "; is the network up?");
}

namespace detail {

/// Gloo's own words for these are not for people, and it leaks what it has opened.
inline void check_interface(const std::string& name) {
  if (::if_nametoindex(name.c_str()) != 0) return;
  std::string there;
  const std::unique_ptr<struct if_nameindex, void (*)(struct if_nameindex*)> all(
      ::if_nameindex(), ::if_freenameindex);
  for (const auto* each = all.get(); each != nullptr && each->if_index != 0; ++each)
    append_text(there, concat(there.empty() ? "" : ", ", each->if_name));
  fail("this machine has no network interface ", name, "; it has ", there);
}
inline void check_own_address(const std::string& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(address.c_str(), nullptr, &hints, &found);
  check(code == 0, "the address ", address, " cannot be found: ", ::gai_strerror(code));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, ::freeaddrinfo);
  const int socket = ::socket(found->ai_family, found->ai_socktype, found->ai_protocol);
  const bool bound = socket >= 0 && ::bind(socket, found->ai_addr, found->ai_addrlen) == 0;
  const int error = errno;
  if (socket >= 0) ::close(socket);
  check(bound, "this machine cannot listen at ", address, ": ", std::strerror(error));
}

}  // namespace detail

/// Where this rank listens for the others: an address of this machine, or one of its interfaces ("eth0").
struct GlooOptions {
  std::string address{};
  std::string interface {};
};

class GlooTransport final : public PeerTransport {
 public:
  /// Collective over the ranks of the world; connects every two of them. Throws Error where that fails.
  GlooTransport(ProcessWorld& world, const GlooOptions& options)
      : state_(std::make_shared<State>(world.rank(), world.size())) {
    if (!options.interface.empty()) detail::check_interface(options.interface);
    else detail::check_own_address(options.address);
    const NoPipeSignal quiet;  // Gloo's own thread begins with it, and keeps it
    try {
      gloo::transport::tcp::attr where;
      where.hostname = options.interface.empty() ? options.address : "";
      where.iface = options.interface;
      auto device = gloo::transport::tcp::CreateDevice(where);
      description_ = concat("Gloo (", device->str(), ")");
      StoreOfGloo store(world);
      state_->context.setTimeout(for_ever);  // limits are the world's
      state_->context.connectFullMesh(store, device);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      fail("rank ", world.rank(), " cannot connect to the other ranks by Gloo: ", error.what(),
           "; are they at addresses that this one can reach? An interface can be chosen");
    }
  }

  [[nodiscard]] int rank() const override { return state_->context.rank; }
  [[nodiscard]] int size() const override { return state_->context.size; }
  [[nodiscard]] Handle send(const std::byte* data, std::size_t bytes, int to,
                            std::uint64_t tag) override {
    // Gloo has one kind of buffer for both ways, and does not write to this one.
    auto made = std::make_unique<Sending>(state_, const_cast<std::byte*>(data), bytes, to);
    made->begin([&](auto& buffer) { buffer.send(to, tag); });
    return made;
  }
  [[nodiscard]] Handle receive(std::byte* data, std::size_t bytes, int from,
                               std::uint64_t tag) override {
    auto made = std::make_unique<Receiving>(state_, data, bytes, from);
    made->begin([&](auto& buffer) { buffer.recv(from, tag); });
    return made;
  }
  void end() noexcept override {
    const std::lock_guard lock(state_->mutex);
    state_->ended = true;
    for (auto* buffer : state_->waited) {
      buffer->abortWaitSend();
      buffer->abortWaitRecv();
    }
  }
  [[nodiscard]] std::string description() const override { return description_; }

 private:
  using Buffer = gloo::transport::UnboundBuffer;

  struct State {
    State(int rank, int size) : context(rank, size) {}
    gloo::rendezvous::Context context;
    std::mutex mutex;
    std::set<Buffer*> waited;
    bool ended = false;
  };

  class TransferOfGloo : public Transfer {
   public:
    TransferOfGloo(std::shared_ptr<State> state, std::byte* data, std::size_t bytes, int peer)
        : state_(std::move(state)),
          buffer_(state_->context.createUnboundBuffer(data, bytes)),
          peer_(peer) {}
    template <class Action>
    void begin(Action action) {
      guarded([&] {
        action(*buffer_);
        return true;
      });
    }
    bool wait() override {
      const Waited waited(*state_, buffer_.get());
      if (waited.ended()) return false;
      return guarded([&] { return wait_for(*buffer_); });
    }

   private:
    /// While end() knows of the wait.
    class Waited {
     public:
      Waited(State& state, Buffer* buffer) : state_(&state), buffer_(buffer) {
        const std::lock_guard lock(state.mutex);
        ended_ = state.ended;
        if (!ended_) state.waited.insert(buffer);
      }
      Waited(const Waited&) = delete;
      Waited& operator=(const Waited&) = delete;
      ~Waited() {
        const std::lock_guard lock(state_->mutex);
        state_->waited.erase(buffer_);
      }
      [[nodiscard]] bool ended() const { return ended_; }

     private:
      State* state_;
      Buffer* buffer_;
      bool ended_;
    };
    virtual bool wait_for(Buffer& buffer) = 0;
    template <class Action>
    bool guarded(Action action) {
      const NoPipeSignal quiet;
      try {
        return action();
      } catch (const std::exception& error) {
        throw PeerLost(peer_, error.what());
      }
    }
    std::shared_ptr<State> state_;
    std::unique_ptr<Buffer> buffer_;
    int peer_;
  };
  // Gloo's own limits break every connection of a rank.
  static constexpr auto for_ever = std::chrono::milliseconds(std::chrono::hours(24 * 365));
  class Sending final : public TransferOfGloo {
    using TransferOfGloo::TransferOfGloo;
    bool wait_for(Buffer& buffer) override { return buffer.waitSend(for_ever); }
  };
  class Receiving final : public TransferOfGloo {
    using TransferOfGloo::TransferOfGloo;
    bool wait_for(Buffer& buffer) override { return buffer.waitRecv(for_ever); }
  };

  /// Gloo's view of the store that the ranks have met in.
  class StoreOfGloo final : public gloo::rendezvous::Store {
   public:
    explicit StoreOfGloo(ProcessWorld& world) : world_(&world) {}
    void set(const std::string& key, const std::vector<char>& data) override {
      world_->store().set("gloo/" + key, std::string(data.begin(), data.end()));
    }
    std::vector<char> get(const std::string& key) override {
      const auto value = world_->get("gloo/" + key);
      return {value.begin(), value.end()};
    }
    void wait(const std::vector<std::string>& keys) override {
      for (const auto& key : keys) static_cast<void>(get(key));
    }
    void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
      wait(keys);
    }

   private:
    ProcessWorld* world_;
  };

  std::shared_ptr<State> state_;
  std::string description_;
};

/// All ranks of the world, over Gloo. Collective.
[[nodiscard]] inline PeerComm gloo_world(const std::shared_ptr<ProcessWorld>& world,
                                         const GlooOptions& options) {
  return PeerComm(world, std::make_shared<GlooTransport>(*world, options));
}

}  // namespace dhp
