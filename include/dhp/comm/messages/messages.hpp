// Messages is the interface of CPU engines (MPI, Gloo), on which messages/collectives.hpp builds collectives.
#pragma once

#include <dhp/comm/collective.hpp>
#include <dhp/device/cpu.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace dhp::detail {

/// Another rank of a group: its number there, and in the world.
struct Peer {
  int rank = 0, world_rank = 0;
};

/// Thrown if the connection to a rank has broken.
class PeerLost : public std::runtime_error {
 public:
  PeerLost(Peer peer, const std::string& why) : std::runtime_error(why), peer_(peer) {}
  [[nodiscard]] Peer peer() const { return peer_; }

 private:
  Peer peer_;
};

class Messages {
 public:
  /// A pending transfer. Its bytes must stay in place until wait() returns or the transfer is destroyed.
  class Transfer {
   public:
    virtual ~Transfer() = default;
    /// Waits until the transfer is done; called once. Throws PeerLost, or Aborted if the world has ended.
    virtual void wait() = 0;
  };
  using Handle = std::unique_ptr<Transfer>;

  virtual ~Messages() = default;
  /// send and receive do not block; both throw PeerLost. owner keeps the bytes alive until the transfer's end.
  /// Transfers between two ranks with the same tag match in the order of their calls. Groups that share two ranks have
  /// other tags. Thread-safe.
  [[nodiscard]] virtual Handle send(const std::byte* data, std::size_t bytes, Peer to,
                                    std::uint64_t tag, std::shared_ptr<const void> owner = {}) = 0;
  [[nodiscard]] virtual Handle receive(std::byte* data, std::size_t bytes, Peer from,
                                       std::uint64_t tag) = 0;
  /// Starts the engine's own collective if it is exact and not slower; otherwise returns null.
  [[nodiscard]] virtual Handle start(const Collective<Cpu>&) { return nullptr; }
  /// Returns the chunk size, in bytes, of long transfers that are reduced on arrival; all ranks return the same.
  [[nodiscard]] virtual std::size_t chunk_bytes() const { return std::size_t{1} << 21; }
  /// Returns the Messages of the subgroup `members`, where this rank is members[rank]; null if it can use these.
  /// Collective.
  [[nodiscard]] virtual std::shared_ptr<Messages> of_part(const std::vector<int>& /*members*/,
                                                          int /*rank*/) {
    return nullptr;
  }
  /// Returns the transport's name: "Gloo, TCP over eth0".
  [[nodiscard]] virtual std::string description() const = 0;
};

}  // namespace dhp::detail
