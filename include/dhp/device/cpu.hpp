// Cpu: the device of a machine without a GPU. Work is done at once, in the calling thread and its pool;
// freed blocks are kept for reuse, because fresh pages from the system cost more than most ops. Memory of a
// host program is asked for each block instead, and gets it back at once.
#pragma once

#include <dhp/core/copy_bytes.hpp>
#include <dhp/core/trace.hpp>
#include <dhp/device/device.hpp>
#include <dhp/device/out_of_memory.hpp>
#include <dhp/device/thread_pool.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory_resource>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace dhp {

/// Keeps freed blocks by size class (an eighth of a power of two, so at most 12.5 % are wasted).
class CpuMemory : public std::enable_shared_from_this<CpuMemory> {
 public:
  static constexpr std::align_val_t alignment{64};

  /// hosts: whose memory it is; null: the system's.
  explicit CpuMemory(std::pmr::memory_resource* hosts = nullptr) : hosts_(hosts) {}
  CpuMemory(const CpuMemory&) = delete;
  CpuMemory& operator=(const CpuMemory&) = delete;
  ~CpuMemory() {
    for (auto& [size, blocks] : free_)
      for (auto* block : blocks) ::operator delete(block, alignment);
  }

  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) {
    if (hosts_ != nullptr) return from_host(bytes);
    const std::size_t size = size_class(bytes);
    std::byte* block = nullptr;
    {
      const std::lock_guard lock(mutex_);
      auto& blocks = free_[size];
      if (!blocks.empty()) {
        block = blocks.back();
        blocks.pop_back();
      }
    }
    if (block == nullptr)
      block = static_cast<std::byte*>(::operator new(size, alignment, std::nothrow));
    if (block == nullptr) throw OutOfMemory(size, "");
    // The last owner may outlive the device: the deleter keeps the pool alive.
    return {block,
            [pool = shared_from_this(), size](std::byte* freed) { pool->give(freed, size); }};
  }

 private:
  static std::size_t size_class(std::size_t bytes) {
    if (bytes <= 512) return 512;
    const std::size_t step = std::bit_floor(bytes - 1) / 8;
    return (bytes + step - 1) / step * step;
  }
  void give(std::byte* block, std::size_t size) {
    const std::lock_guard lock(mutex_);
    free_[size].push_back(block);
  }
  [[nodiscard]] std::shared_ptr<std::byte> from_host(std::size_t bytes) {
    constexpr auto aligned = static_cast<std::size_t>(alignment);
    const std::size_t size = std::max<std::size_t>(bytes, 1);
    try {
      auto* const block = static_cast<std::byte*>(hosts_->allocate(size, aligned));
      return {block, [hosts = hosts_, size](std::byte* freed) {
                hosts->deallocate(freed, size, static_cast<std::size_t>(alignment));
              }};
    } catch (const std::bad_alloc&) {
      throw OutOfMemory(bytes, "the host program's memory");
    }
  }

  std::pmr::memory_resource* hosts_;
  std::mutex mutex_;
  std::map<std::size_t, std::vector<std::byte*>> free_;
};

struct CpuOptions {
  int threads = 1;  ///< threads that share the tiles of one op; never changes a bit of a result
  /// A host program's memory for tensors; null: the system's. It outlives them, and is used by whichever thread
  /// makes or drops one, perhaps by several at the same time.
  std::pmr::memory_resource* memory = nullptr;
  std::shared_ptr<Trace> trace{};  ///< of the rank; null: none
};

/// One rank's Cpu: movable, not copyable; used by one thread at a time. Its memory may be freed anywhere.
class Cpu {
 public:
  static constexpr bool host_accessible = true;

  explicit Cpu(CpuOptions options = {})
      : memory_(std::make_shared<CpuMemory>(options.memory)),
        pool_(std::make_unique<ThreadPool>(options.threads)),
        trace_(std::move(options.trace)) {}

  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) {
    return memory_->allocate(bytes);
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    copy_bytes(to, from, bytes);
  }
  void copy_from_host(std::byte* to, const std::byte* from, std::size_t bytes) {
    copy(to, from, bytes);
  }
  void copy_to_host(std::byte* to, const std::byte* from, std::size_t bytes) {
    copy(to, from, bytes);
  }
  void fill_zero(std::byte* to, std::size_t bytes) {
    if (bytes > 0) std::memset(to, 0, bytes);
  }
  [[nodiscard]] HostCopy start_copy_to_host(const std::byte* from, std::size_t bytes) {
    HostCopy made = HostCopy::on_heap(bytes);
    copy(made.data(), from, bytes);
    return made;
  }
  void synchronize() {}

  /// Null where nobody asks what was done when.
  [[nodiscard]] const std::shared_ptr<Trace>& trace() const { return trace_; }
  /// Now, for the trace.
  [[nodiscard]] TraceMoment moment() const { return trace_->now_s(); }
  /// A span of the trace, until what it returns goes; arguments as TraceScope's.
  template <class... Arguments>
  [[nodiscard]] TraceScope<Cpu> scope(const Arguments&... arguments) {
    return TraceScope<Cpu>(*this, arguments...);
  }

  [[nodiscard]] int threads() const { return pool_->size(); }

  /// body(tile) for each of `tiles` tiles, shared by the pool.
  template <class Body>
  void for_tiles(std::int64_t tiles, Body&& body) {
    pool_->run(tiles, body);
  }
  /// body(first, last) over [0, count) in pieces of at most `tile` elements.
  template <class Body>
  void for_ranges(std::int64_t count, std::int64_t tile, Body&& body) {
    const auto pieces = (count + tile - 1) / tile;
    const auto piece = [&](std::int64_t index) {
      const auto first = index * tile;
      body(first, first + tile < count ? first + tile : count);
    };
    pool_->run(pieces, piece);
  }

 private:
  std::shared_ptr<CpuMemory> memory_;
  std::unique_ptr<ThreadPool> pool_;
  std::shared_ptr<Trace> trace_;
};

static_assert(Device<Cpu>);
static_assert(!Device<int>);

}  // namespace dhp
