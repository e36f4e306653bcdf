// PeerTransport: bytes from one process of the world to another. What a library of communication must be able
// to do for PeerComm, which makes all collectives of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

namespace dhp {

/// The connection to a rank has broken.
class PeerLost : public std::runtime_error {
 public:
  PeerLost(int rank, const std::string& why) : std::runtime_error(why), rank_(rank) {}
  [[nodiscard]] int rank() const { return rank_; }

 private:
  int rank_;
};

class PeerTransport {
 public:
  /// Bytes under way. They must stay where they are until wait() has returned, or the transfer is gone.
  class Transfer {
   public:
    virtual ~Transfer() = default;
    /// Returns when the other side takes the bytes, and these are free. False: the transport has ended, and nothing is
    /// known of them. Throws PeerLost. Called once.
    [[nodiscard]] virtual bool wait() = 0;
  };
  using Handle = std::unique_ptr<Transfer>;

  virtual ~PeerTransport() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// Neither blocks. Transfers between two ranks with the same tag meet in the order in which both began them; any
  /// number with different tags may be under way. Several threads may call. They throw PeerLost.
  [[nodiscard]] virtual Handle send(const std::byte* data, std::size_t bytes, int to,
                                    std::uint64_t tag) = 0;
  [[nodiscard]] virtual Handle receive(std::byte* data, std::size_t bytes, int from,
                                       std::uint64_t tag) = 0;
  /// As send(), of bytes that nobody waits for soon: what moves them only in its own calls moves all of them now.
  [[nodiscard]] virtual Handle send_ahead(const std::byte* data, std::size_t bytes, int to,
                                          std::uint64_t tag) {
    return send(data, bytes, to, tag);
  }
  /// Of what is long and is reduced as it comes, pieces of about so many bytes; the same on all ranks.
  [[nodiscard]] virtual std::size_t chunk_bytes() const { return std::size_t{1} << 21; }
  /// Ends every wait, now and later. By any thread.
  virtual void end() noexcept = 0;
  /// What carries the bytes to another rank, for people: "Gloo, TCP over eth0".
  [[nodiscard]] virtual std::string description(int peer) const = 0;
};

}  // namespace dhp
