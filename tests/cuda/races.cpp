// Finds races between the threads of emulated kernels. Kernels are compiled with -fsanitize=thread, which calls a
// function before each access to memory; this file, compiled without, defines those functions instead of libtsan.
// Threads run in random order, a new one at each barrier.
#include <tests/cuda/races.hpp>
#include <tests/cuda/watch.hpp>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <random>
#include <set>
#include <vector>

namespace tests::watch {
namespace {

/// What a device runs, and on which thread of a block.
struct Watched {
  Races races;
  const std::type_info* kernel = nullptr;
  int thread = -1;
  std::span<const std::byte> stack;
  std::vector<int> order;
  std::minstd_rand random;

  void access(const void* memory, std::size_t bytes, bool writes) {
    if (thread < 0 || holds(stack, memory)) return;
    const auto* const at = static_cast<const std::byte*>(memory);
    writes ? races.writes(thread, at, bytes) : races.reads(thread, at, bytes);
  }
};

/// Each thread has a device of its own, and watches that. Kept for ever: code runs after the end of its thread's
/// objects.
Watched& watched() {
  thread_local auto* made = new Watched;
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

void launch_begins(const std::type_info& kernel) {
  watched().kernel = &kernel;
  watched().races.launch_begins();
}
void launch_ends() { watched().races.launch_ends(*watched().kernel); }
void block_begins(std::int64_t block, std::span<const std::byte> shared) {
  watched().races.block_begins(block, shared);
}
void barrier() { watched().races.barrier(); }
void thread_runs(int thread, std::span<const std::byte> stack) {
  watched().thread = thread;
  watched().stack = stack;
}
void thread_stops() { watched().thread = -1; }
std::span<const int> order(int threads) {
  auto& order = watched().order;
  order.resize(static_cast<std::size_t>(threads));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), watched().random);
  return order;
}
bool leaves_out(const std::source_location& where) {
  static Barriers barriers;
  return barriers.leaves_out(where);
}

}  // namespace tests::watch

// What -fsanitize=thread calls.
extern "C" {
#define ACCESS(bytes)                                                                     \
  void __tsan_read##bytes(void* at) { tests::watch::watched().access(at, bytes, false); } \
  void __tsan_write##bytes(void* at) { tests::watch::watched().access(at, bytes, true); } \
  void __tsan_unaligned_read##bytes(void* at) {                                           \
    tests::watch::watched().access(at, bytes, false);                                     \
  }                                                                                       \
  void __tsan_unaligned_write##bytes(void* at) { tests::watch::watched().access(at, bytes, true); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
#undef ACCESS
void __tsan_read_range(void* at, std::size_t bytes) {
  tests::watch::watched().access(at, bytes, false);
}
void __tsan_write_range(void* at, std::size_t bytes) {
  tests::watch::watched().access(at, bytes, true);
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
