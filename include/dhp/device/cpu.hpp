// Cpu: runs ops synchronously, in the calling thread and its thread pool. It caches freed blocks, because the first
// access to new pages takes longer than most ops. Blocks from a host program's memory resource are not cached.
#pragma once

#include <dhp/core/copy_bytes.hpp>
#include <dhp/core/trace.hpp>
#include <dhp/core/wait_clock.hpp>
#include <dhp/device/device.hpp>
#include <dhp/device/memory_count.hpp>
#include <dhp/device/out_of_memory.hpp>
#include <dhp/device/thread_pool.hpp>

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace dhp {

namespace detail {
inline constexpr std::size_t huge_page = std::size_t{2} << 20;
/// Returns the alignment of a block of this size.
[[nodiscard]] inline std::align_val_t alignment_of(std::size_t bytes) {
  return std::align_val_t{bytes < huge_page ? 64 : huge_page};
}
/// Asks Linux for huge pages wherever the block fills one: kernels then wait less often for translated addresses.
/// Returns null if no memory is left. The caller frees the block by operator delete with alignment_of(bytes).
[[nodiscard]] inline std::byte* allocate_block(std::size_t bytes) {
  void* const block = ::operator new(bytes, alignment_of(bytes), std::nothrow);
  // The constant's header, sys/mman.h, defines macros such as MAP_TYPE, which other headers use as names.
  constexpr int madv_hugepage = 14;
  if (block != nullptr && bytes >= huge_page)
    (void)::syscall(SYS_madvise, block, bytes / huge_page * huge_page, madv_hugepage);
  return static_cast<std::byte*>(block);
}

/// An allocator that caches freed blocks by size class.
class CpuMemory : public MemoryCount, public std::enable_shared_from_this<CpuMemory>, NonCopyable {
 public:
  /// hosts: the host program's memory resource; null means the system's allocator.
  explicit CpuMemory(std::pmr::memory_resource* hosts = nullptr) : hosts_(hosts) {}
  ~CpuMemory() { trim(); }

  /// persistent: allocate exactly this size, and do not cache the block when it is freed.
  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes, bool persistent = false) {
    if (hosts_ != nullptr) return from_host(bytes);
    const std::size_t size = persistent ? bytes : std::max<std::size_t>(size_class(bytes, 64), 512);
    std::byte* block = persistent ? nullptr : take(size);
    const bool fresh = block == nullptr;
    if (fresh) block = allocate_block(size);
    if (block == nullptr) {  // tries again without cached blocks
      trim();
      block = allocate_block(size);
    }
    if (block == nullptr) throw OutOfMemory(size, "");
    count_used(size, fresh);
    // The deleter keeps the pool alive: a tensor may outlive the device.
    return {block, [pool = shared_from_this(), size, persistent](std::byte* freed) {
              pool->give(freed, size, persistent);
            }};
  }
  void trim() {
    const std::lock_guard lock(mutex_);
    for (auto& blocks : free_)
      while (auto* const block = blocks.pop()) {
        ::operator delete(block, alignment_of(blocks.size));
        count_returned(blocks.size);
      }
  }

 private:
  /// Returns null if no block of this size is free.
  std::byte* take(std::size_t size) {
    const std::lock_guard lock(mutex_);
    return blocks_of(size).pop();
  }
  void give(std::byte* block, std::size_t size, bool persistent) {
    count_freed(size, !persistent);
    if (persistent) return ::operator delete(block, alignment_of(size));
    const std::lock_guard lock(mutex_);
    blocks_of(size).push(block);
  }
  /// A linked list of the free blocks of one size. Each block begins with the address of the next block.
  struct FreeBlocks {
    std::size_t size;
    std::byte* first = nullptr;
    void push(std::byte* block) {
      std::memcpy(block, &first, sizeof first);
      first = block;
    }
    std::byte* pop() {
      auto* const block = first;
      if (block != nullptr) std::memcpy(&first, block, sizeof first);
      return block;
    }
  };
  FreeBlocks& blocks_of(std::size_t size) {
    const auto at =
        std::lower_bound(free_.begin(), free_.end(), size,
                         [](const auto& of, std::size_t than) { return of.size < than; });
    return at != free_.end() && at->size == size ? *at : *free_.insert(at, FreeBlocks{size});
  }
  [[nodiscard]] std::shared_ptr<std::byte> from_host(std::size_t bytes) {
    constexpr std::size_t aligned = 64;
    const std::size_t size = std::max<std::size_t>(bytes, 1);
    try {
      auto* const block = static_cast<std::byte*>(hosts_->allocate(size, aligned));
      count_used(size, true);
      return {block, [pool = shared_from_this(), size](std::byte* freed) {
                pool->hosts_->deallocate(freed, size, aligned);
                pool->count_freed(size, false);
              }};
    } catch (const std::bad_alloc&) {
      throw OutOfMemory(bytes, "the host program's memory");
    }
  }

  std::pmr::memory_resource* hosts_;
  std::mutex mutex_;              // protects free_
  std::vector<FreeBlocks> free_;  // one list per size
};

#if defined(__x86_64__)
/// Returns whether the CPU has the instruction set AMX-BF16 and Linux lets this process use its tile registers.
[[nodiscard]] inline bool has_tiles() {
  static const bool has = [] {
    constexpr int amx_bf16 = 1 << 22, request_permission = 0x1023, tile_data = 18;
    int leaf[4] = {7};  // extended features
    asm("cpuid" : "+a"(leaf[0]), "=b"(leaf[1]), "+c"(leaf[2]), "=d"(leaf[3]));
    return (leaf[3] & amx_bf16) != 0 &&
           ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
  }();
  return has;
}
#else
[[nodiscard]] constexpr bool has_tiles() { return false; }
#endif
}  // namespace detail

/// The instructions that multiply bf16 elements. A machine that lacks them multiplies floats.
enum class Bf16Products {
  floats,  ///< elements are widened to float
  pairs,   ///< AVX512_BF16: the bits of floats, except that subnormal numbers count as 0
  tiles    ///< AMX-BF16: another order of the sum (docs/numbers.md); subnormal numbers count as 0
};
namespace detail {
/// Returns the fastest products of bf16 on this machine. Pairs are slower than floats on Intel's CPUs: a Xeon of the
/// fifth generation starts two float products in a cycle, but a product of pairs in every second cycle.
[[nodiscard]] inline Bf16Products fastest_bf16_products() {
  if (has_tiles()) return Bf16Products::tiles;
#if defined(__x86_64__)
  if (__builtin_cpu_is("intel")) return Bf16Products::floats;
#endif
  return Bf16Products::pairs;
}
}  // namespace detail

struct CpuOptions {
  int threads = 1;  ///< threads per op; results have the same bits for any number
  /// The host program's memory for tensors, or null for the system's. It must be thread-safe and outlive the tensors.
  std::pmr::memory_resource* memory = nullptr;
  std::shared_ptr<Trace> trace{};      ///< the rank's trace; null: do not trace
  std::shared_ptr<WaitClock> waits{};  ///< clock of the rank's thread; null: do not count waits
  Bf16Products bf16_products = detail::fastest_bf16_products();
};

/// The CPU device of one rank. Only one thread at a time may use it, but any thread may free its memory. It is not
/// movable, because runs and communicators keep references to it; to hold several, use std::deque or std::unique_ptr.
class Cpu : detail::Kernels, detail::NonCopyable {
 public:
  static constexpr bool host_accessible = true;

  explicit Cpu(CpuOptions options = {})
      : memory_(std::make_shared<detail::CpuMemory>(options.memory)),
        pool_(std::make_unique<detail::ThreadPool>(options.threads)),
        trace_(std::move(options.trace)),
        waits_(std::move(options.waits)),
        bf16_products_(options.bf16_products) {}

  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) {
    return memory_->allocate(bytes);
  }
  [[nodiscard]] std::shared_ptr<std::byte> allocate_persistent(std::size_t bytes) {
    return memory_->allocate(bytes, true);
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    detail::copy_bytes(to, from, bytes);
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
    HostCopy result = HostCopy::on_heap(bytes);
    copy(result.data(), from, bytes);
    return result;
  }
  void synchronize() {}

  /// Returns null if the device does not trace.
  [[nodiscard]] const std::shared_ptr<Trace>& trace() const { return trace_; }
  [[nodiscard]] TraceMoment moment() const { return trace_->now_s(); }
  /// Returns null if the device does not count waits.
  [[nodiscard]] const std::shared_ptr<WaitClock>& waits() const { return waits_; }
  /// Counts the lifetime of the result as a wait for a collective.
  [[nodiscard]] WaitClock::Scope waiting() {
    return WaitClock::Scope(waits_.get(), WaitClock::collectives);
  }
  /// Traces the lifetime of the result as a span. The arguments are those of TraceScope.
  [[nodiscard]] TraceScope<Cpu> scope(const auto&... arguments) {
    return TraceScope<Cpu>(*this, arguments...);
  }

  [[nodiscard]] int threads() const { return pool_->size(); }
  [[nodiscard]] Bf16Products bf16_products() const { return bf16_products_; }
  [[nodiscard]] const detail::CpuMemory& memory() const { return *memory_; }
  [[nodiscard]] detail::CpuMemory& memory() { return *memory_; }

  /// Calls body(tile) for each of `tiles` tiles, in parallel.
  void for_tiles(std::int64_t tiles, FunctionRef<void(std::int64_t)> body) {
    pool_->run(tiles, body);
  }
  /// Calls body(first, last) for ranges of at most `tile` elements of [0, count), in parallel.
  void for_ranges(std::int64_t count, std::int64_t tile,
                  FunctionRef<void(std::int64_t, std::int64_t)> body) {
    pool_->run((count + tile - 1) / tile, [&](std::int64_t index) {
      const auto first = index * tile;
      body(first, first + tile < count ? first + tile : count);
    });
  }

 private:
  std::shared_ptr<detail::CpuMemory> memory_;
  std::unique_ptr<detail::ThreadPool> pool_;
  std::shared_ptr<Trace> trace_;
  std::shared_ptr<WaitClock> waits_;
  Bf16Products bf16_products_;
};

static_assert(Device<Cpu>);
static_assert(!Device<int>);

}  // namespace dhp
