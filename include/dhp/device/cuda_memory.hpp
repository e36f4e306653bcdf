// CudaMemory: keeps freed blocks of a GPU for reuse, because cudaMalloc waits for the GPU. All work of a device
// is ordered on one stream, so a block may be given out again at once; where another stream may still use
// it (a collective under way), the device's stream is made to wait for that first.
#pragma once

#include <dhp/device/cuda_event.hpp>
#include <dhp/device/out_of_memory.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace dhp {

class CudaMemory : public std::enable_shared_from_this<CudaMemory> {
 public:
  /// stream: the one that the device's work is ordered on.
  CudaMemory(int device, cudaStream_t stream) : device_(device), stream_(stream) {}
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  ~CudaMemory() {
    for (auto& arena : arenas_) drop(arena);
  }

  /// Uninitialised, 256-byte aligned; throws OutOfMemory.
  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) {
    const std::size_t size = size_class(bytes);
    const std::lock_guard lock(mutex_);
    const auto arena = current_;
    Block block = take(arenas_[arena], size);
    if (block.data == nullptr) block.data = fresh(size, bytes);
    for (const auto& user : block.users) user.before(stream_);
    in_use_ += size;
    most_in_use_ = std::max(most_in_use_, in_use_);
    // The last owner may outlive the device: the deleter keeps the pool alive.
    return {block.data, [pool = shared_from_this(), size, arena](std::byte* freed) {
              pool->give(freed, size, arena);
            }};
  }

  /// Work of another stream up to `event` reads or writes blocks of this pool. `user` numbers that stream;
  /// its earlier event is forgotten.
  void used_by(int user, const CudaEvent& event) {
    const std::lock_guard lock(mutex_);
    users_[user] = event;
  }
  /// The device's stream waits for all other streams that use blocks of this pool.
  void join_users() {
    const std::lock_guard lock(mutex_);
    for (const auto& [user, event] : users_) event.before(stream_);
  }
  [[nodiscard]] int new_user() {
    const std::lock_guard lock(mutex_);
    return next_user_++;
  }

  /// From now on memory comes from an arena of its own, and goes back there: what a recorded graph works in
  /// is nobody else's. Returns the number of the arena before. All streams have nothing left to do.
  std::size_t use_new_arena() {
    const std::lock_guard lock(mutex_);
    const auto before = current_;
    users_.clear();
    current_ = arenas_.size();
    arenas_.emplace_back();
    return before;
  }
  /// Back to an earlier arena, when recording is over. Events that were recorded belong to the graph.
  void use_arena(std::size_t number) {
    const std::lock_guard lock(mutex_);
    users_.clear();
    current_ = number;
  }
  /// Gives the free blocks that no recorded graph needs back to the GPU.
  void trim() {
    const std::lock_guard lock(mutex_);
    drop(arenas_.front());
  }

  [[nodiscard]] std::size_t in_use_bytes() const {
    const std::lock_guard lock(mutex_);
    return in_use_;
  }
  [[nodiscard]] std::size_t most_in_use_bytes() const {
    const std::lock_guard lock(mutex_);
    return most_in_use_;
  }

 private:
  struct Block {
    std::byte* data = nullptr;
    std::vector<CudaEvent> users{};
  };
  using Arena = std::map<std::size_t, std::vector<Block>>;

  /// An eighth of a power of two: at most 12.5 % are wasted.
  static std::size_t size_class(std::size_t bytes) {
    constexpr std::size_t least = 512;
    if (bytes <= least) return least;
    const std::size_t step = std::max(std::bit_floor(bytes - 1) / 8, least / 2);
    return (bytes + step - 1) / step * step;
  }
  static Block take(Arena& arena, std::size_t size) {
    auto& blocks = arena[size];
    if (blocks.empty()) return {};
    Block block = std::move(blocks.back());
    blocks.pop_back();
    return block;
  }
  std::byte* fresh(std::size_t size, std::size_t asked) {
    void* data = nullptr;
    auto code = cudaMalloc(&data, size);
    if (code == cudaErrorMemoryAllocation) {  // free blocks of other sizes may make room
      quietly(code);
      drop(arenas_.front());
      code = cudaMalloc(&data, size);
    }
    if (code == cudaErrorMemoryAllocation) {
      quietly(code);
      std::size_t free = 0, total = 0;
      quietly(cudaMemGetInfo(&free, &total));
      throw OutOfMemory(asked, concat("GPU ", device_, " (", in_use_, " of its ", total,
                                      " bytes are this rank's tensors, ", free, " are free)"));
    }
    check_cuda(code, "cudaMalloc");
    return static_cast<std::byte*>(data);
  }
  void give(std::byte* data, std::size_t size, std::size_t arena) {
    const std::lock_guard lock(mutex_);
    Block block{data, {}};
    for (const auto& [user, event] : users_) block.users.push_back(event);
    arenas_[arena][size].push_back(std::move(block));
    in_use_ -= size;
  }
  static void drop(Arena& arena) noexcept {
    for (auto& [size, blocks] : arena)
      for (auto& block : blocks) quietly(cudaFree(block.data));  // waits for the GPU
    arena.clear();
  }

  int device_;
  cudaStream_t stream_;
  mutable std::mutex mutex_;
  std::vector<Arena> arenas_{1};
  std::size_t current_ = 0;
  std::map<int, CudaEvent> users_;
  int next_user_ = 0;
  std::size_t in_use_ = 0;
  std::size_t most_in_use_ = 0;
};

}  // namespace dhp
