// StateCopy copies a rank's pieces to host memory while later work runs; a GPU uses a separate stream. A replayed step
// cannot wait for this copy before its update. Before such steps the GPU copies the state to a twin that no step
// overwrites.
#pragma once

#include <dhp/device/cpu.hpp>
#include <dhp/device/out_of_memory.hpp>
#include <dhp/nn/pieces.hpp>

#include <atomic>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace dhp::detail {
/// The rank's thread calls start() and finish(); the thread that writes the pieces calls pieces().
template <class Dev>
class StateCopy {
 public:
  /// replayed: steps after start() may be replayed graphs, which do not call finish().
  explicit StateCopy(bool replayed) : replayed_(replayed) {}

  /// Begins a copy of the state as it is after all work issued so far. The previous copy must no longer be in use.
  void start(Dev& dev, std::vector<HeldPiece<Dev>> pieces) {
    pieces_ = std::move(pieces);
    bytes_ = 0;
    for (const auto& held : pieces_) bytes_ += held.piece.bytes();
    copied_ = false;
    if constexpr (!Dev::host_accessible) start_copies(dev);
  }
  /// Waits for the copy; call it before later work writes to the state.
  void finish(Dev& dev) {
    if constexpr (Dev::host_accessible) copied_.wait(false);
    else if (!replayed_) dev.finish_copies_beside();
  }
  /// Returns the copies; call it once.
  [[nodiscard]] std::vector<HeldPiece<Cpu>> pieces() {
    const Copied copied{copied_};
    std::vector<HeldPiece<Cpu>> result;
    if constexpr (Dev::host_accessible) on_host_.resize(bytes_);
    auto* to = on_host_.data();
    for (std::size_t number = 0; number < pieces_.size(); ++number) {
      const auto& held = pieces_[number];
      auto* data = to;
      if constexpr (Dev::host_accessible) {
        std::memcpy(to, held.data.bytes(), held.piece.bytes());
        to += held.piece.bytes();
      } else {
        copies_[number].wait_here();
        data = copies_[number].data();
      }
      result.push_back({held.piece, View<Cpu>(data, held.piece.dtype, {held.piece.count()})});
    }
    return result;
  }

 private:
  /// Sets the flag when the copy ends, even if it failed.
  struct Copied {
    std::atomic<bool>& flag;
    ~Copied() {
      flag = true;
      flag.notify_all();
    }
  };

  void start_copies(Dev& dev) {
    copies_.clear();
    if (replayed_ && !twin_) {
      try {
        twin_ = dev.allocate(bytes_);
      } catch (const OutOfMemory&) {  // later work then waits until the state is on the host
      }
    }
    auto* to = twin_.get();
    for (const auto& held : pieces_) {
      const auto bytes = held.piece.bytes();
      const std::byte* from = held.data.bytes();
      if (twin_) {
        dev.copy(to, from, bytes);
        from = std::exchange(to, to + bytes);
      }
      copies_.push_back(dev.start_copy_beside(from, bytes));
    }
    if (replayed_ && !twin_) dev.finish_copies_beside();
  }

  bool replayed_;
  std::vector<HeldPiece<Dev>> pieces_;
  std::vector<std::byte> on_host_;   // used if the host can read the device's memory
  std::vector<HostCopy> copies_;     // used if it cannot
  std::shared_ptr<std::byte> twin_;  // the second copy on the device
  std::size_t bytes_ = 0;
  std::atomic<bool> copied_{true};
};
}  // namespace dhp::detail
