// CudaMemory: a caching allocator, because cudaMalloc synchronizes with the GPU. All work of a device is ordered on one
// stream, so a freed block can be reused immediately. If another stream uses a block, the device's stream must wait for
// it before the block is freed. Allocations by a host program's allocator are not cached.
#pragma once

#include <dhp/device/cuda_event.hpp>
#include <dhp/device/memory_count.hpp>
#include <dhp/device/out_of_memory.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace dhp {

/// A host program's GPU allocator: stream-ordered like cudaMallocAsync, or immediate like cudaMalloc. Both functions
/// must be thread-safe.
struct CudaAllocator {
  /// Returns at least `bytes`, 256-byte aligned, for later work on `stream`, or null if out of memory.
  std::function<std::byte*(std::size_t bytes, cudaStream_t stream)> allocate{};
  /// Frees a block that earlier work on `stream` may still use. Must not throw.
  std::function<void(std::byte* data, std::size_t bytes, cudaStream_t stream)> free{};

  [[nodiscard]] explicit operator bool() const { return allocate != nullptr; }
};

namespace detail {
/// Makes a GPU current for the calling thread until the end of a scope, because the thread may also use other GPUs.
class CurrentDevice : NonCopyable {
 public:
  explicit CurrentDevice(int device) noexcept {
    int current = device;
    quietly(cudaGetDevice(&current));
    if (current == device) return;
    before_ = current;
    quietly(cudaSetDevice(device));
  }
  ~CurrentDevice() {
    if (before_) quietly(cudaSetDevice(*before_));
  }

 private:
  std::optional<int> before_{};
};

class CudaMemory : public MemoryCount,
                   public std::enable_shared_from_this<CudaMemory>,
                   NonCopyable {
 public:
  CudaMemory(int device, CudaStream stream, CudaAllocator hosts = {})
      : device_(device), stream_(std::move(stream)), hosts_(std::move(hosts)) {
    check((hosts_.allocate == nullptr) == (hosts_.free == nullptr),
          "an allocator of GPU memory needs both allocate and free");
  }
  ~CudaMemory() {
    for (auto& [number, arena] : arenas_) drop(arena);
  }

  /// Returns an uninitialized, 256-byte aligned block. Throws OutOfMemory.
  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) {
    if (hosts_) return from_host(bytes);
    const std::size_t size = std::max<std::size_t>(size_class(bytes, 256), 512);
    const std::lock_guard lock(mutex_);
    const auto arena = current_;
    std::byte* block = take(arenas_[arena], size);
    const bool fresh = block == nullptr;
    if (fresh) block = from_gpu(size, bytes);
    count_used(size, fresh);
    // The deleter keeps the pool alive: a tensor may outlive the device.
    return {block, [pool = shared_from_this(), size, arena](std::byte* freed) {
              pool->give(freed, size, arena);
            }};
  }

  /// Returns a block of exactly this size. When freed, the block returns to the GPU and not to the cache.
  [[nodiscard]] std::shared_ptr<std::byte> allocate_persistent(std::size_t bytes) {
    if (hosts_) return from_host(bytes);
    const std::size_t size = std::max<std::size_t>(bytes, 1);
    const std::lock_guard lock(mutex_);
    std::byte* const block = from_gpu(size, bytes);
    count_used(size, true);
    return {block, [pool = shared_from_this(), size](std::byte* freed) {
              quietly(cudaFree(freed));  // synchronizes with the GPU
              pool->count_freed(size, false);
            }};
  }
  /// Returns the free bytes of the current GPU.
  [[nodiscard]] static std::size_t free_bytes() {
    std::size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return free;
  }

  /// Switches to a new arena, so that a recorded graph shares no memory with other work. Returns its number. The stream
  /// must be idle.
  std::size_t use_new_arena() {
    const std::lock_guard lock(mutex_);
    return current_ = ++newest_;
  }
  /// Switches back to the first arena after a recording.
  void use_first_arena() {
    const std::lock_guard lock(mutex_);
    current_ = 0;
  }
  /// Frees the arena's blocks. Those in use will go to the first arena.
  void end_arena(std::size_t number) {
    const std::lock_guard lock(mutex_);
    drop(arenas_[number]);
    arenas_.erase(number);
  }
  /// Frees the cached blocks of the first arena. Recorded graphs need the others.
  void trim() {
    const std::lock_guard lock(mutex_);
    drop(arenas_[0]);
  }

 private:
  using Arena = std::map<std::size_t, std::vector<std::byte*>>;

  static std::byte* take(Arena& arena, std::size_t size) {
    auto& blocks = arena[size];
    if (blocks.empty()) return nullptr;
    std::byte* const block = blocks.back();
    blocks.pop_back();
    return block;
  }
  std::shared_ptr<std::byte> from_host(std::size_t bytes) {
    const std::size_t size = std::max<std::size_t>(bytes, 1);
    std::byte* const data = hosts_.allocate(size, stream_.get());
    if (data == nullptr)
      throw OutOfMemory(bytes, concat("the host program's memory of GPU ", device_, " (",
                                      in_use_bytes(), " bytes of it are this rank's tensors)"));
    count_used(size, true);
    return {data, [pool = shared_from_this(), size](std::byte* freed) {
              pool->hosts_.free(freed, size, pool->stream_.get());
              pool->count_freed(size, false);
            }};
  }
  std::byte* from_gpu(std::size_t size, std::size_t asked) {
    const CurrentDevice here(device_);
    void* data = nullptr;
    auto code = cudaMalloc(&data, size);
    if (code == cudaErrorMemoryAllocation) {  // tries again without cached blocks
      quietly(code);
      drop(arenas_[0]);
      code = cudaMalloc(&data, size);
    }
    if (code == cudaErrorMemoryAllocation) {
      quietly(code);
      std::size_t free = 0, total = 0;
      quietly(cudaMemGetInfo(&free, &total));
      throw OutOfMemory(asked, concat("GPU ", device_, " (", in_use_bytes(), " of its ", total,
                                      " bytes are this rank's tensors, ", free, " are free)"));
    }
    check_cuda(code, "cudaMalloc");
    return static_cast<std::byte*>(data);
  }
  void give(std::byte* data, std::size_t size, std::size_t arena) {
    count_freed(size, true);
    const std::lock_guard lock(mutex_);
    const auto own = arenas_.find(arena);  // none if the arena has ended
    (own == arenas_.end() ? arenas_[0] : own->second)[size].push_back(data);
  }
  void drop(Arena& arena) noexcept {
    const CurrentDevice here(device_);
    for (auto& [size, blocks] : arena) {
      for (auto* block : blocks) quietly(cudaFree(block));  // synchronizes with the GPU
      count_returned(size * blocks.size());
    }
    arena.clear();
  }

  int device_;
  CudaStream stream_;  // must outlive the blocks
  CudaAllocator hosts_;
  std::mutex mutex_;                              // protects the members below
  std::map<std::size_t, Arena> arenas_{{0, {}}};  // the first one, and those of recorded graphs
  std::size_t current_ = 0, newest_ = 0;
};

/// The memory of a recorded graph: an arena from its construction on, freed at its end.
class CudaArena : NonCopyable {
 public:
  explicit CudaArena(std::shared_ptr<CudaMemory> pool)
      : pool_(std::move(pool)), number_(pool_->use_new_arena()) {}
  ~CudaArena() { pool_->end_arena(number_); }

 private:
  std::shared_ptr<CudaMemory> pool_;
  std::size_t number_;
};

/// Identifies a recording among those of all devices, also after its end. The default: no recording.
class RecordingId {
 public:
  RecordingId() = default;
  explicit RecordingId(const std::shared_ptr<const CudaArena>& arena) : arena_(arena) {}
  [[nodiscard]] bool operator==(const RecordingId& other) const {
    return !arena_.owner_before(other.arena_) && !other.arena_.owner_before(arena_);
  }

 private:
  std::weak_ptr<const CudaArena> arena_;  // keeps others from having the same identity
};
}  // namespace detail

}  // namespace dhp
