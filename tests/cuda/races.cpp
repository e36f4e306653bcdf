// Finds races between the threads of emulated kernels. Kernels are compiled with -fsanitize=thread, which calls a
// function before each access to memory; this file, compiled without, defines those functions instead of libtsan.
//
// Each byte remembers its last writer and readers: launch, block, thread, and the barriers passed before. Two accesses,
// one of them a write, are a race if they are of different blocks of a launch, or of different threads of a block
// without a barrier between. Shuffles order nothing: CUDA promises no more. Threads run in random order, a new one at
// each barrier.
#include <dhp/core/error.hpp>
#include <tests/cuda/watch.hpp>

#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace tests::watch {
namespace {

/// A byte's last accesses. Whatever is of another life is forgotten.
struct Cell {
  std::uint32_t life = 0;        ///< of global memory the launch, of shared memory the block
  std::uint32_t written_in = 0;  ///< how many barriers had been passed, over all blocks
  std::uint32_t read_in = 0;
  std::int32_t writing_block = -1;
  std::int32_t first_reading_block = -1;
  std::int16_t writer = -1;
  std::int16_t reader = -1;  ///< the first since the last barrier
  std::int16_t other_reader = -1;
};

/// The cells of all bytes that kernels have touched, by page.
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
  void launch_begins(const std::type_info& kernel) {
    kernel_ = kernel.name();
    launch_ = ++life_;
    found_.clear();
    count_ = 0;
    shadow_.keep_small();
  }
  void launch_ends() {
    if (count_ == 0) return;
    const std::unique_ptr<char, void (*)(void*)> name(
        abi::__cxa_demangle(kernel_, nullptr, nullptr, nullptr), &std::free);
    dhp::fail("kernel ", name.get(), " has ", count_, " races; the first: ", found_);
  }
  void block_begins(std::int64_t block, std::span<const std::byte> shared) {
    block_ = static_cast<std::int32_t>(block);
    block_life_ = ++life_;
    shared_ = shared;
    ++epoch_;
  }
  void barrier() { ++epoch_; }
  void thread_runs(int thread, std::span<const std::byte> stack) {
    thread_ = static_cast<std::int16_t>(thread);
    stack_ = stack;
  }
  void thread_stops() { thread_ = -1; }
  [[nodiscard]] std::span<const int> order(int threads) {
    order_.resize(static_cast<std::size_t>(threads));
    std::iota(order_.begin(), order_.end(), 0);
    std::shuffle(order_.begin(), order_.end(), random_);
    return order_;
  }

  void access(const void* memory, std::size_t bytes, bool writes) {
    if (thread_ < 0 || holds(stack_, memory)) return;
    const bool shared = holds(shared_, memory);
    const auto begin = reinterpret_cast<std::uintptr_t>(memory);
    for (auto address = begin; address < begin + bytes; ++address)
      one(shadow_.at(address), address, shared, writes);
  }

 private:
  static bool holds(std::span<const std::byte> memory, const void* address) {
    const auto* at = static_cast<const std::byte*>(address);
    return at >= memory.data() && at < memory.data() + memory.size();
  }
  void one(Cell& cell, std::uintptr_t address, bool shared, bool writes) {
    const auto life = shared ? block_life_ : launch_;
    if (cell.life != life) cell = {.life = life};
    if (cell.writing_block >= 0 &&
        (cell.writing_block != block_ || (cell.writer != thread_ && cell.written_in == epoch_)))
      found(address, shared, writes ? "writes" : "reads", cell.writing_block, cell.writer,
            "has written");
    const bool read_now = cell.read_in == epoch_ && cell.reader >= 0;
    if (writes) {
      if (cell.first_reading_block >= 0 && cell.first_reading_block != block_)
        found(address, shared, "writes", cell.first_reading_block, -1, "has read");
      else if (read_now && (cell.reader != thread_ || cell.other_reader >= 0))
        found(address, shared, "writes", block_,
              cell.reader != thread_ ? cell.reader : cell.other_reader, "has read");
      cell.writing_block = block_;
      cell.writer = thread_;
      cell.written_in = epoch_;
      return;
    }
    if (cell.first_reading_block < 0) cell.first_reading_block = block_;
    if (!read_now) {
      cell.read_in = epoch_;
      cell.reader = thread_;
      cell.other_reader = -1;
    } else if (cell.reader != thread_) {
      cell.other_reader = thread_;
    }
  }
  void found(std::uintptr_t address, bool shared, const char* does, std::int32_t block,
             std::int16_t thread, const char* has_done) {
    if (++count_ > 1) return;
    found_ =
        "thread " + std::to_string(thread_) + " of block " + std::to_string(block_) + " " + does +
        (shared ? " byte " +
                      std::to_string(address - reinterpret_cast<std::uintptr_t>(shared_.data())) +
                      " of shared memory"
                : std::string(" a byte of global memory")) +
        ", which " + (thread < 0 ? "a thread" : "thread " + std::to_string(thread)) + " of " +
        (block == block_ ? "it" : "block " + std::to_string(block)) + " " + has_done +
        " without a barrier between";
  }

  Shadow shadow_;
  const char* kernel_ = "";
  std::uint32_t life_ = 0, launch_ = 0, block_life_ = 0, epoch_ = 0;
  std::int32_t block_ = 0;
  std::int16_t thread_ = -1;
  std::span<const std::byte> shared_, stack_;
  std::vector<int> order_;
  std::minstd_rand random_;
  std::int64_t count_ = 0;
  std::string found_;
};

/// Each thread has a device of its own, and watches that. Kept for ever: code runs after the end of its thread's
/// objects.
Races& races() {
  thread_local auto* made = new Races;
  return *made;
}

/// DHP_LEAVE_OUT=FILE:LINE leaves one barrier out; DHP_LIST_BARRIERS=1 prints those reached.
class Barriers {
 public:
  Barriers()
      : left_out_(value_of("DHP_LEAVE_OUT")), lists_(!value_of("DHP_LIST_BARRIERS").empty()) {}
  ~Barriers() {
    for (const auto& name : seen_) std::printf("barrier %s\n", name.c_str());
  }
  [[nodiscard]] bool leaves_out(const std::source_location& where) {
    if (left_out_.empty() && !lists_) return false;
    const std::string path = where.file_name();
    const auto name = path.substr(path.rfind('/') + 1) + ":" + std::to_string(where.line());
    if (lists_) seen_.insert(name);
    return name == left_out_;
  }

 private:
  static std::string value_of(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  }
  std::string left_out_;
  bool lists_;
  std::set<std::string> seen_;
};

}  // namespace

void launch_begins(const std::type_info& kernel) { races().launch_begins(kernel); }
void launch_ends() { races().launch_ends(); }
void block_begins(std::int64_t block, std::span<const std::byte> shared) {
  races().block_begins(block, shared);
}
void barrier() { races().barrier(); }
void thread_runs(int thread, std::span<const std::byte> stack) {
  races().thread_runs(thread, stack);
}
void thread_stops() { races().thread_stops(); }
std::span<const int> order(int threads) { return races().order(threads); }
bool leaves_out(const std::source_location& where) {
  static Barriers barriers;
  return barriers.leaves_out(where);
}

}  // namespace tests::watch

// What -fsanitize=thread calls.
extern "C" {
#define ACCESS(bytes)                                                                             \
  void __tsan_read##bytes(void* at) { tests::watch::races().access(at, bytes, false); }           \
  void __tsan_write##bytes(void* at) { tests::watch::races().access(at, bytes, true); }           \
  void __tsan_unaligned_read##bytes(void* at) { tests::watch::races().access(at, bytes, false); } \
  void __tsan_unaligned_write##bytes(void* at) { tests::watch::races().access(at, bytes, true); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
#undef ACCESS
void __tsan_read_range(void* at, std::size_t bytes) {
  tests::watch::races().access(at, bytes, false);
}
void __tsan_write_range(void* at, std::size_t bytes) {
  tests::watch::races().access(at, bytes, true);
}
// Tests use these atomics, kernels none.
#define ATOMICS(bits, T)                                                                       \
  T __tsan_atomic##bits##_load(const volatile T* at, int) { return __atomic_load_n(at, 5); }   \
  T __tsan_atomic##bits##_fetch_add(volatile T* at, T value, int) {                            \
    return __atomic_fetch_add(at, value, 5);                                                   \
  }                                                                                            \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T* at, T* old, T value, int, int) { \
    return __atomic_compare_exchange_n(at, old, value, true, 5, 5);                            \
  }
ATOMICS(32, unsigned)
ATOMICS(64, unsigned long)
#undef ATOMICS
void __tsan_atomic_signal_fence(int) {}
void __tsan_init() {}
void __tsan_vptr_update(void**, void*) {}
}
