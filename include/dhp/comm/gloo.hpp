// Gloo, a library of communication over TCP between processes on CPUs: as a transport for PeerComm.
#pragma once

#include <dhp/comm/gloo_store.hpp>
#include <dhp/comm/meet/address.hpp>
#include <dhp/comm/no_pipe_signal.hpp>
#include <dhp/comm/peers.hpp>

#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace dhp {

struct GlooOptions {
  std::string address{};  ///< of this machine, where this rank listens for the others
};

class GlooTransport final : public PeerTransport {
 public:
  /// Collective over the ranks of the world; connects every two of them. Throws Error where that fails.
  GlooTransport(ProcessWorld& world, const GlooOptions& options)
      : state_(std::make_shared<State>(world.rank(), world.size())) {
    // Gloo's own words for this are not for people, and it leaks what it has opened.
    comm::check_own_address(options.address);
    const NoPipeSignal quiet;  // Gloo's own thread begins with it, and keeps it
    try {
      gloo::transport::tcp::attr where;
      where.hostname = options.address;
      auto device = gloo::transport::tcp::CreateDevice(where);
      description_ = concat("Gloo (", device->str(), ")");
      GlooStore store(world, "gloo/");
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
  /// Both sides' threads meet before each message, however long it is: few are better than small ones.
  [[nodiscard]] std::size_t chunk_bytes() const override { return std::size_t{1} << 23; }
  void end() noexcept override {
    const std::lock_guard lock(state_->mutex);
    state_->ended = true;
    for (auto* buffer : state_->waited) {
      buffer->abortWaitSend();
      buffer->abortWaitRecv();
    }
  }
  [[nodiscard]] std::string description(int) const override { return description_; }

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

  std::shared_ptr<State> state_;
  std::string description_;
};

/// All ranks of the world, over Gloo. Collective.
[[nodiscard]] inline PeerComm gloo_world(const std::shared_ptr<ProcessWorld>& world,
                                         const GlooOptions& options) {
  return PeerComm(world, std::make_shared<GlooTransport>(*world, options));
}

}  // namespace dhp
