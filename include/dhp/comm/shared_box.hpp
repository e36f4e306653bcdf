// SharedBox: the memory that a rank shares with the other ranks of its machine: a bell that they ring, for each of them
// a lane of notes about messages, and a heap that the messages themselves lie in until they have been read. Only
// its owner writes notes and messages; a reader says that it has taken a note, and that it has read a message.
#pragma once

#include <dhp/comm/doorbell.hpp>
#include <dhp/comm/shared_memory.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>

namespace dhp {

/// A piece of a message.
struct SharedNote {
  std::uint64_t tag = 0;
  std::uint64_t offset = 0;  ///< of its block in the heap
  std::uint64_t bytes = 0;
  std::uint64_t last = 0;  ///< 1: the message ends with it
};

/// One writes, one reads: it needs no lock.
class SharedLane {
 public:
  /// False: it is full, and the note is not in it.
  [[nodiscard]] bool put(const SharedNote& note) {
    const auto at = written_.load(std::memory_order_relaxed);
    if (at - taken_.load(std::memory_order_acquire) == notes) return false;
    ring_[at % notes] = note;
    written_.store(at + 1, std::memory_order_release);
    return true;
  }
  /// False: there is none. was_full: who writes may be waiting for room.
  [[nodiscard]] bool take(SharedNote& note, bool& was_full) {
    const auto at = taken_.load(std::memory_order_relaxed);
    const auto written = written_.load(std::memory_order_acquire);
    if (at == written) return false;
    was_full = was_full || written - at == notes;
    note = ring_[at % notes];
    taken_.store(at + 1, std::memory_order_release);
    return true;
  }

  static constexpr std::uint64_t notes = 256;

 private:
  alignas(64) std::atomic<std::uint64_t> written_ = 0;
  alignas(64) std::atomic<std::uint64_t> taken_ = 0;
  alignas(64) SharedNote ring_[notes];
};

/// Before the bytes of each piece.
struct alignas(64) SharedBlock {
  std::atomic<std::uint32_t> read = 0;
  [[nodiscard]] std::byte* bytes() { return reinterpret_cast<std::byte*>(this + 1); }
};

class SharedBox {
 public:
  /// Of this rank, for so many ranks. Throws Error where the system refuses.
  SharedBox(int ranks, std::size_t heap_bytes)
      : memory_(SharedMemory::create(SharedMemory::reserved + heap_at(ranks) + heap_bytes)),
        ranks_(ranks),
        heap_bytes_(heap_bytes) {
    new (memory_.data()) Doorbell;
    for (int to = 0; to < ranks; ++to) new (lane_place(to)) SharedLane;
  }
  /// Another rank's. Throws Error where this process cannot reach it.
  SharedBox(int ranks, const std::string& address)
      : memory_(SharedMemory::open(address)), ranks_(ranks) {
    check(memory_.size() >= heap_at(ranks), "the shared memory at \"", address,
          "\" is too small for ", ranks, " ranks");
    heap_bytes_ = memory_.size() - heap_at(ranks);
  }

  [[nodiscard]] std::string address() const { return memory_.address(); }
  [[nodiscard]] bool owner_gone() const { return memory_.owner_gone(); }
  [[nodiscard]] Doorbell& bell() const { return *at<Doorbell>(memory_.data()); }
  [[nodiscard]] SharedLane& lane(int to) const { return *at<SharedLane>(lane_place(to)); }
  [[nodiscard]] std::size_t heap_bytes() const { return heap_bytes_; }
  /// offset: of the heap.
  [[nodiscard]] SharedBlock* make_block(std::size_t offset) {
    return new (block_place(offset)) SharedBlock;
  }
  [[nodiscard]] SharedBlock& block(std::size_t offset) const {
    return *at<SharedBlock>(block_place(offset));
  }
  /// Whether a piece lies inside.
  [[nodiscard]] bool holds(const SharedNote& note) const {
    return note.offset < heap_bytes_ && note.offset % alignof(SharedBlock) == 0 &&
           heap_bytes_ - note.offset >= sizeof(SharedBlock) &&
           heap_bytes_ - note.offset - sizeof(SharedBlock) >= note.bytes;
  }

 private:
  template <class T>
  [[nodiscard]] static T* at(std::byte* place) {
    return std::launder(reinterpret_cast<T*>(place));
  }
  static constexpr std::size_t lanes_at = 64;
  static_assert(sizeof(Doorbell) <= lanes_at);
  [[nodiscard]] static std::size_t heap_at(int ranks) {
    return lanes_at + static_cast<std::size_t>(ranks) * sizeof(SharedLane);
  }
  [[nodiscard]] std::byte* lane_place(int to) const {
    return memory_.data() + lanes_at + static_cast<std::size_t>(to) * sizeof(SharedLane);
  }
  [[nodiscard]] std::byte* block_place(std::size_t offset) const {
    return memory_.data() + heap_at(ranks_) + offset;
  }

  SharedMemory memory_;
  int ranks_;
  std::size_t heap_bytes_ = 0;
};

}  // namespace dhp
