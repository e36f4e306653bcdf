// Messages: what an engine on CPUs (MPI, Gloo) must be able to do. messages/collectives.hpp makes collectives of it.
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

/// The connection to a rank of the group has broken.
class PeerLost : public std::runtime_error {
 public:
  PeerLost(int rank, const std::string& why) : std::runtime_error(why), rank_(rank) {}
  [[nodiscard]] int rank() const { return rank_; }

 private:
  int rank_;
};

class Messages {
 public:
  /// Something under way. Its bytes stay where they are until wait() has returned, or the transfer is gone.
  class Transfer {
   public:
    virtual ~Transfer() = default;
    /// Throws PeerLost, and Aborted when the world has ended. Called once.
    virtual void wait() = 0;
  };
  using Handle = std::unique_ptr<Transfer>;

  virtual ~Messages() = default;
  /// Neither blocks; both throw PeerLost. owner: keeps the bytes until the transfer's end. Transfers between two ranks
  /// with the same tag meet in the order in which both began them. Several threads may call.
  [[nodiscard]] virtual Handle send(const std::byte* data, std::size_t bytes, int to,
                                    std::uint64_t tag, std::shared_ptr<const void> owner = {}) = 0;
  [[nodiscard]] virtual Handle receive(std::byte* data, std::size_t bytes, int from,
                                       std::uint64_t tag) = 0;
  /// The engine's own collective, begun, where that is right for the type and not slower; null: there is none.
  [[nodiscard]] virtual Handle start(const Collective<Cpu>&) { return nullptr; }
  /// What is long and is reduced as it comes goes in pieces of about so many bytes; the same on all ranks.
  [[nodiscard]] virtual std::size_t chunk_bytes() const { return std::size_t{1} << 21; }
  /// Of a part of this group, whose ranks here are `members`; this one is members[rank]. id: no other group that two of
  /// them are in has it. Collective.
  [[nodiscard]] virtual std::shared_ptr<Messages> of_part(const std::vector<int>& members, int rank,
                                                          std::uint32_t id) = 0;
  /// What carries the bytes, for people: "Gloo, TCP over eth0".
  [[nodiscard]] virtual std::string description() const = 0;
};

}  // namespace dhp::detail
