// Finds races between the threads of a kernel, from their accesses to memory.
//
// Each byte remembers its last writer and readers: launch, block, thread, and the barriers passed before. Two accesses,
// one of them a write, are a race if they are of different blocks of a launch, or of different threads of a block
// without a barrier between. Shuffles order nothing: CUDA promises no more.
#pragma once

#include <dhp/core/error.hpp>

#include <cxxabi.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <typeinfo>
#include <unordered_map>

namespace tests {

[[nodiscard]] inline std::string demangled(const char* name) {
  const std::unique_ptr<char, void (*)(void*)> found(
      abi::__cxa_demangle(name, nullptr, nullptr, nullptr), &std::free);
  return found ? found.get() : name;
}
[[nodiscard]] inline bool holds(std::span<const std::byte> memory, const void* address) {
  const auto* at = static_cast<const std::byte*>(address);
  return at >= memory.data() && at < memory.data() + memory.size();
}

/// The last accesses to a byte, within the present launch or block.
struct Cell {
  std::uint32_t life = 0;        ///< number of the launch (global memory) or block (shared)
  std::uint32_t written_in = 0;  ///< number of barriers passed before, in all blocks
  std::uint32_t read_in = 0;
  std::int32_t writing_block = -1;
  std::int32_t first_reading_block = -1;
  std::int16_t writer = -1;
  std::int16_t reader = -1;  ///< first since the last barrier
  std::int16_t other_reader = -1;
};

/// The cells of all bytes that kernels have accessed, by page.
class Shadow {
 public:
  [[nodiscard]] Cell& at(std::uintptr_t address) {
    const auto page = address / page_bytes;
    auto& [number, cells] = recent_[page % recent_.size()];
    if (number != page || cells == nullptr) {
      auto& found = pages_[page];
      if (!found) found = std::make_unique<Page>();
      number = page;
      cells = found.get();
    }
    return (*cells)[address % page_bytes];
  }
  void keep_small() {
    if (pages_.size() * sizeof(Page) < (std::size_t{1} << 29)) return;
    pages_.clear();
    recent_.fill({});
  }

 private:
  static constexpr std::uintptr_t page_bytes = 1024;
  using Page = std::array<Cell, page_bytes>;
  std::unordered_map<std::uintptr_t, std::unique_ptr<Page>> pages_;
  std::array<std::pair<std::uintptr_t, Page*>, 4096> recent_{};
};

class Races {
 public:
  void launch_begins() {
    launch_ = ++life_;
    found_.clear();
    count_ = read_ = written_ = 0;
    shadow_.keep_small();
  }
  /// Throws if the launch had races.
  void launch_ends(const std::type_info& kernel) const {
    if (count_ > 0)
      dhp::fail("kernel ", demangled(kernel.name()), " has ", count_,
                " races; the first: ", found_);
  }
  void block_begins(std::int64_t block, std::span<const std::byte> shared) {
    block_ = static_cast<std::int32_t>(block);
    block_life_ = ++life_;
    shared_ = shared;
    ++epoch_;
  }
  void barrier() { ++epoch_; }
  void reads(int thread, const std::byte* memory, std::size_t bytes) {
    access(thread, memory, bytes, [&](Cell& cell, Place place) { read(cell, place); });
  }
  /// value: the new bytes, if known. A write that changes nothing is no race.
  void writes(int thread, const std::byte* memory, std::size_t bytes,
              const std::byte* value = nullptr) {
    access(thread, memory, bytes, [&](Cell& cell, Place place) {
      const auto at = place.byte - memory;
      write(cell, place, value != nullptr && value[at] == *place.byte);
    });
  }
  /// read() and written() return the bytes of global memory that the launch has read and written, each counted once.
  [[nodiscard]] std::int64_t read() const { return read_; }
  [[nodiscard]] std::int64_t written() const { return written_; }

 private:
  struct Place {
    const std::byte* byte;
    bool shared;
  };
  void access(int thread, const std::byte* memory, std::size_t bytes, const auto& act) {
    thread_ = static_cast<std::int16_t>(thread);
    const bool shared = holds(shared_, memory);
    const auto life = shared ? block_life_ : launch_;
    for (const auto* byte = memory; byte != memory + bytes; ++byte) {
      auto& cell = shadow_.at(reinterpret_cast<std::uintptr_t>(byte));
      if (cell.life != life) cell = {.life = life};
      act(cell, Place{byte, shared});
    }
  }
  [[nodiscard]] bool written_by_another(const Cell& cell) const {
    return cell.writing_block >= 0 &&
           (cell.writing_block != block_ || (cell.writer != thread_ && cell.written_in == epoch_));
  }
  void write(Cell& cell, Place place, bool same) {
    if (written_by_another(cell) && !same)
      found(place, "writes", cell.writing_block, cell.writer, "has written");
    const bool read_now = cell.read_in == epoch_ && cell.reader >= 0;
    if (cell.first_reading_block >= 0 && cell.first_reading_block != block_)
      found(place, "writes", cell.first_reading_block, -1, "has read");
    else if (read_now && (cell.reader != thread_ || cell.other_reader >= 0))
      found(place, "writes", block_, cell.reader != thread_ ? cell.reader : cell.other_reader,
            "has read");
    if (!place.shared && cell.writing_block < 0) ++written_;
    cell.writing_block = block_;
    cell.writer = thread_;
    cell.written_in = epoch_;
  }
  void read(Cell& cell, Place place) {
    if (written_by_another(cell))
      found(place, "reads", cell.writing_block, cell.writer, "has written");
    if (!place.shared && cell.first_reading_block < 0) ++read_;
    if (cell.first_reading_block < 0) cell.first_reading_block = block_;
    if (cell.read_in != epoch_ || cell.reader < 0) {
      cell.read_in = epoch_;
      cell.reader = thread_;
      cell.other_reader = -1;
    } else if (cell.reader != thread_) {
      cell.other_reader = thread_;
    }
  }
  void found(Place place, const char* does, std::int32_t block, std::int16_t thread,
             const char* has_done) {
    if (++count_ > 1) return;
    found_ =
        "thread " + std::to_string(thread_) + " of block " + std::to_string(block_) + " " + does +
        (place.shared ? " byte " + std::to_string(place.byte - shared_.data()) + " of shared memory"
                      : std::string(" a byte of global memory")) +
        ", which " + (thread < 0 ? "a thread" : "thread " + std::to_string(thread)) + " of " +
        (block == block_ ? "it" : "block " + std::to_string(block)) + " " + has_done +
        " without a barrier between";
  }

  Shadow shadow_;
  std::uint32_t life_ = 0, launch_ = 0, block_life_ = 0, epoch_ = 0;
  std::int32_t block_ = 0;
  std::int16_t thread_ = -1;
  std::span<const std::byte> shared_;
  std::int64_t count_ = 0, read_ = 0, written_ = 0;
  std::string found_;
};

}  // namespace tests
