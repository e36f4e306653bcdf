// Meta: a device whose tensors have no data, like PyTorch's meta device. Operations check shapes but compute nothing.
// Memory is counted but not used, so that a run's memory is known before it is allocated. Blocks up to small_bytes do
// have memory, because code that compares ranks reads a few numbers.
#pragma once

#include <dhp/core/trace.hpp>
#include <dhp/device/device.hpp>
#include <dhp/device/memory_count.hpp>
#include <dhp/device/out_of_memory.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

class Meta;
namespace detail {
/// Counts bytes like the caching allocators of Cpu and Cuda. Not thread-safe.
class MetaMemory : public MemoryCount, public std::enable_shared_from_this<MetaMemory> {
 public:
  static constexpr std::size_t small_bytes = 1 << 16;

  /// min_step: the smallest step between size classes, which is 64 for Cpu and 256 for Cuda.
  explicit MetaMemory(std::size_t min_step) : min_step_(min_step) {}

  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes, bool persistent = false) {
    const std::size_t size =
        persistent ? bytes : std::max<std::size_t>(size_class(bytes, min_step_), 512);
    auto& cached = cached_[size];
    const bool fresh = persistent || cached == 0;
    if (!fresh) --cached;
    count_used(size, fresh);
    if (in_use_bytes() > max_in_use_) {
      max_in_use_ = in_use_bytes();
      max_in_use_in_ = scopes_;
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
    // Large blocks are only address space: they read as zeros and use no memory until written, and operations of Meta
    // never write. Reusing freed blocks saves system calls.
    auto& spaces = spaces_[size];
    if (spaces.empty()) {
      void* const space = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (space == MAP_FAILED) throw OutOfMemory(bytes, "the address space");
      spaces.push_back(static_cast<std::byte*>(space));
    }
    auto* const space = spaces.back();
    spaces.pop_back();
    return {space, [count_down, &spaces](std::byte* block) {
              spaces.push_back(block);
              count_down();
            }};
  }
  ~MetaMemory() {
    for (const auto& [size, spaces] : spaces_)
      for (auto* const space : spaces) munmap(space, size);
  }

  [[nodiscard]] std::size_t max_in_use_bytes() const { return max_in_use_; }
  /// Returns the scopes, outermost first, that were open at the maximum of in_use_bytes().
  [[nodiscard]] const std::vector<std::string>& max_in_use_in() const { return max_in_use_in_; }

 private:
  friend dhp::Meta;
  std::size_t min_step_;
  std::map<std::size_t, std::int64_t> cached_;               // number of free blocks by size
  std::map<std::size_t, std::vector<std::byte*>> spaces_{};  // free blocks of address space
  std::size_t max_in_use_ = 0;
  std::vector<std::string> scopes_, max_in_use_in_;
};

/// The work that operations would do on a real device.
struct MetaCount {
  double flop = 0;           ///< FLOP of products, convolutions and attention
  double dropout_flop = 0;   ///< the part of `flop` in attention with dropout
  double product_bytes = 0;  ///< bytes read and written by products, convolutions and attention
  double bytes = 0;          ///< bytes read and written by all other operations
  double launches = 0;
  double calls = 0;  ///< calls of communicators
  double sent_bytes = 0;
  MetaCount& add(const MetaCount& o, double times = 1) {
    flop += times * o.flop, dropout_flop += times * o.dropout_flop;
    product_bytes += times * o.product_bytes, bytes += times * o.bytes;
    launches += times * o.launches, calls += times * o.calls, sent_bytes += times * o.sent_bytes;
    return *this;
  }
};
/// A scope that has ended.
struct MetaSpan {
  std::string name{};
  std::size_t depth = 0;  ///< number of enclosing scopes
  MetaCount count{};
  double grown_bytes = 0;  ///< growth of the bytes in use during the scope; may be negative
};
}  // namespace detail

struct MetaOptions {
  std::size_t min_step = 64;  ///< smallest step between size classes, in bytes
};

/// A device that only counts memory and work. Not thread-safe.
class Meta : detail::Kernels {
 public:
  static constexpr bool host_accessible = false;

  explicit Meta(MetaOptions options = {})
      : memory_(std::make_shared<detail::MetaMemory>(options.min_step)) {}

  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) {
    return memory_->allocate(bytes);
  }
  [[nodiscard]] std::shared_ptr<std::byte> allocate_persistent(std::size_t bytes) {
    return memory_->allocate(bytes, true);
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (bytes <= detail::MetaMemory::small_bytes && bytes > 0) std::memcpy(to, from, bytes);
  }
  void copy_from_host(std::byte* to, const std::byte* from, std::size_t bytes) {
    copy(to, from, bytes);
  }
  void copy_to_host(std::byte* to, const std::byte* from, std::size_t bytes) {
    copy(to, from, bytes);
  }
  void fill_zero(std::byte* to, std::size_t bytes) {
    if (bytes <= detail::MetaMemory::small_bytes && bytes > 0) std::memset(to, 0, bytes);
  }
  [[nodiscard]] HostCopy start_copy_to_host(const std::byte* from, std::size_t bytes) {
    HostCopy result = HostCopy::on_heap(bytes);
    copy(result.data(), from, bytes);
    return result;
  }
  void synchronize() {}

  [[nodiscard]] std::shared_ptr<Trace> trace() const { return nullptr; }
  [[nodiscard]] TraceMoment moment() const { return {}; }
  /// Attributes memory and work to a name. The arguments of scope() are those of TraceScope.
  class Scope : detail::NonCopyable {
   public:
    Scope(Meta& dev, std::string name)
        : dev_(dev), began_(dev.count_), held_(dev.memory_->in_use_bytes()) {
      dev_.memory_->scopes_.push_back(std::move(name));
    }
    ~Scope() {
      auto& scopes = dev_.memory_->scopes_;
      auto name = std::move(scopes.back());
      scopes.pop_back();
      if (scopes.size() > max_depth) return;
      const auto held = static_cast<double>(dev_.memory_->in_use_bytes());
      auto count = dev_.count_;
      count.add(began_, -1);
      dev_.spans_.push_back(
          {std::move(name), scopes.size(), count, held - static_cast<double>(held_)});
    }

   private:
    static constexpr std::size_t max_depth = 2;  // 0: a step, 1: a pass, 2: a layer
    Meta& dev_;
    detail::MetaCount began_;
    std::size_t held_;
  };
  [[nodiscard]] Scope scope(std::string name, TraceKind = TraceKind::work) {
    return {*this, std::move(name)};
  }
  [[nodiscard]] Scope scope(const char* name, std::int64_t number, TraceKind = TraceKind::work) {
    return {*this, concat(name, ' ', number)};
  }
  [[nodiscard]] Scope scope(const char* name, const std::source_location&) { return {*this, name}; }

  [[nodiscard]] const detail::MetaMemory& memory() const { return *memory_; }

  /// Returns the number of multiplications and additions in matrix products, convolutions and attention.
  [[nodiscard]] double flop() const { return count_.flop; }
  [[nodiscard]] const detail::MetaCount& count() const { return count_; }
  /// Returns and removes the spans of steps, passes and layers, in the order of their ends.
  [[nodiscard]] std::vector<detail::MetaSpan> take_spans() { return std::exchange(spans_, {}); }

  void count_product(double flop, const auto&... views) {
    count_.flop += flop;
    count_.launches += 1;
    count_.product_bytes += static_cast<double>((views.size_bytes() + ...));
  }
  void count_attention(double flop, bool drops, const auto&... views) {
    count_product(flop, views...);
    if (drops) count_.dropout_flop += flop;
  }
  /// Counts a launch and the bytes of those arguments that are views.
  void count_launch(const auto&... arguments) {
    count_.launches += 1;
    const auto count_bytes = [&](const auto& argument) {
      if constexpr (requires { argument.size_bytes(); })
        count_.bytes += static_cast<double>(argument.size_bytes());
    };
    (count_bytes(arguments), ...);
  }
  void count_call(double sent_bytes) {
    count_.calls += 1;
    count_.sent_bytes += sent_bytes;
  }

 private:
  std::shared_ptr<detail::MetaMemory> memory_;
  detail::MetaCount count_;
  std::vector<detail::MetaSpan> spans_;
};

template <>
inline constexpr bool detail::has_data<Meta> = false;

static_assert(Device<Meta>);

}  // namespace dhp
