// Meta: a device of tensors without data, as PyTorch's meta device. A program runs on it as on any other device:
// operations check shapes and compute nothing, memory is counted and not used. So a run's memory is known before it is
// allocated. Blocks up to small_bytes have memory, so that what ranks agree on by a few numbers holds.
#pragma once

#include <dhp/core/trace.hpp>
#include <dhp/device/device.hpp>
#include <dhp/device/memory_count.hpp>
#include <dhp/device/out_of_memory.hpp>
#include <dhp/device/size_class.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

/// Counts as the caching allocators of Cpu and Cuda do. Not thread-safe.
class MetaMemory : public detail::MemoryCount, public std::enable_shared_from_this<MetaMemory> {
 public:
  static constexpr std::size_t small_bytes = 1 << 16;

  /// least_step: of size classes; 64 for Cpu, 256 for Cuda.
  explicit MetaMemory(std::size_t least_step) : least_step_(least_step) {}

  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes, bool persistent = false) {
    const std::size_t size =
        persistent ? bytes : std::max<std::size_t>(detail::size_class(bytes, least_step_), 512);
    auto& cached = cached_[size];
    const bool fresh = persistent || cached == 0;
    if (!fresh) --cached;
    count_used(size, fresh);
    if (in_use_bytes() > most_in_use_) {
      most_in_use_ = in_use_bytes();
      most_in_use_in_ = scopes_;
    }
    const auto count_down = [memory = shared_from_this(), size, persistent] {
      memory->count_freed(size, !persistent);
      if (!persistent) ++memory->cached_[size];
    };
    if (size <= small_bytes)
      return {new (std::align_val_t{64}) std::byte[size](), [count_down](std::byte* block) {
                ::operator delete[](block, std::align_val_t{64});
                count_down();
              }};
    // Only address space: it reads as zeros, and uses no memory until written.
    void* const space = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED) throw OutOfMemory(bytes, "the address space");
    return {static_cast<std::byte*>(space), [count_down, size](std::byte* block) {
              munmap(block, size);
              count_down();
            }};
  }

  [[nodiscard]] std::size_t most_in_use_bytes() const { return most_in_use_; }
  /// The scopes, outermost first, at the maximum of in_use_bytes().
  [[nodiscard]] const std::vector<std::string>& most_in_use_in() const { return most_in_use_in_; }

 private:
  friend class Meta;
  std::size_t least_step_;
  std::map<std::size_t, std::int64_t> cached_;  // free blocks by size
  std::size_t most_in_use_ = 0;
  std::vector<std::string> scopes_, most_in_use_in_;
};

struct MetaOptions {
  std::size_t least_step = 64;  ///< of size classes, in bytes
};

/// For one thread.
class Meta : detail::Kernels {
 public:
  static constexpr bool host_accessible = false;

  explicit Meta(MetaOptions options = {})
      : memory_(std::make_shared<MetaMemory>(options.least_step)) {}

  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) {
    return memory_->allocate(bytes);
  }
  [[nodiscard]] std::shared_ptr<std::byte> allocate_persistent(std::size_t bytes) {
    return memory_->allocate(bytes, true);
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bytes <= MetaMemory::small_bytes && bytes > 0) std::memcpy(to, from, bytes);
  }
  void copy_from_host(std::byte* to, const std::byte* from, std::size_t bytes) {
    copy(to, from, bytes);
  }
  void copy_to_host(std::byte* to, const std::byte* from, std::size_t bytes) {
    copy(to, from, bytes);
  }
  void fill_zero(std::byte* to, std::size_t bytes) {
    if (bytes <= MetaMemory::small_bytes && bytes > 0) std::memset(to, 0, bytes);
  }
  [[nodiscard]] HostCopy start_copy_to_host(const std::byte* from, std::size_t bytes) {
    HostCopy made = HostCopy::on_heap(bytes);
    copy(made.data(), from, bytes);
    return made;
  }
  void synchronize() {}

  [[nodiscard]] std::shared_ptr<Trace> trace() const { return nullptr; }
  [[nodiscard]] TraceMoment moment() const { return {}; }
  /// Labels memory use; arguments as for TraceScope.
  class Scope : detail::NonCopyable {
   public:
    Scope(MetaMemory& memory, std::string name) : memory_(memory) {
      memory_.scopes_.push_back(std::move(name));
    }
    ~Scope() { memory_.scopes_.pop_back(); }

   private:
    MetaMemory& memory_;
  };
  [[nodiscard]] Scope scope(std::string name, TraceKind = TraceKind::work) {
    return {*memory_, std::move(name)};
  }
  [[nodiscard]] Scope scope(const char* name, std::int64_t number, TraceKind = TraceKind::work) {
    return {*memory_, concat(name, ' ', number)};
  }
  [[nodiscard]] Scope scope(const char* name, const std::source_location&) {
    return {*memory_, name};
  }

  [[nodiscard]] const MetaMemory& memory() const { return *memory_; }

  /// Multiplications and additions of all matrix products, convolutions and attentions.
  [[nodiscard]] double flop() const { return flop_; }
  void count_flop(double flop) { flop_ += flop; }

 private:
  std::shared_ptr<MetaMemory> memory_;
  double flop_ = 0;
};

template <>
inline constexpr bool has_data<Meta> = false;

static_assert(Device<Meta>);

}  // namespace dhp
