// Emulated: a device that runs the kernels of cuda/ on the host, block after block, with a fiber for each thread of a
// block. A thread runs until it waits for others. When all threads of a block or of a warp wait, they continue. Shared
// memory and new tensors are filled with NaN, to reveal reads before writes.
#pragma once

#include <dhp/cuda/warp_product.hpp>
#include <dhp/device/cpu.hpp>
#include <tests/cuda/executor.hpp>

#include <setjmp.h>
#include <ucontext.h>

#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace tests {

/// A point at which the scheduler or a fiber continues. Each fiber has its own stack.
class Context {
 public:
  /// Prepares the next switch_to() this context: it calls entry(argument), which never returns.
  void begin(void (*entry)(unsigned low, unsigned high), const void* argument) {
    if (!stack_) stack_ = std::make_unique_for_overwrite<std::byte[]>(stack_bytes);
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack_.get();
    context_.uc_stack.ss_size = stack_bytes;
    const auto self = reinterpret_cast<std::uintptr_t>(argument);
    makecontext(&context_, reinterpret_cast<void (*)()>(entry), 2, static_cast<unsigned>(self),
                static_cast<unsigned>(self >> 32));
    begun_ = true;
  }

  /// Continues `to`, until `to` switches back. Jumps are ten times as fast as swapcontext, but sanitizers need
  /// swapcontext.
  void switch_to(Context& to) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    swapcontext(&context_, &to.context_);
#else
    if (_setjmp(jump_) != 0) return;
    if (!to.begun_) _longjmp(to.jump_, 1);
    to.begun_ = false;
    setcontext(&to.context_);
#endif
  }

 private:
  static constexpr std::size_t stack_bytes = 128 << 10;
  ucontext_t context_{};
  jmp_buf jump_{};
  bool begun_ = false;
  std::unique_ptr<std::byte[]> stack_;
};

class EmulatedBlockRun;

/// A fiber for one thread of a block. In the next block, it runs the thread with the same number.
struct Fiber {
  enum class State { ready, waits_for_block, waits_for_warp, done };
  Context context;
  EmulatedBlockRun* block = nullptr;
  State state = State::ready;
  bool between_threads = false;    // can run a thread without begin()
  alignas(16) std::byte slot[48];  // this thread's value in a shuffle
};

/// Work that was issued during a recording, and the memory that this work uses.
struct EmulatedGraph {
  std::vector<std::function<void()>> work;
  std::vector<std::shared_ptr<std::byte>> memory;
  [[nodiscard]] explicit operator bool() const { return !work.empty(); }
};

class Emulated : dhp::detail::Kernels {
 public:
  static constexpr bool host_accessible = true;
  static constexpr bool runs_kernels = true;

  /// All bytes of new memory get this value, which is NaN in f64, f32, bf16 and f16.
  static constexpr int poison = 0xff;

  /// Returns null, if the device does not trace.
  const std::shared_ptr<dhp::Trace>& trace() const { return trace_; }
  dhp::TraceMoment moment() const { return {}; }
  template <class... Arguments>
  dhp::TraceScope<Emulated> scope(const Arguments&... arguments) {
    return dhp::TraceScope<Emulated>(*this, arguments...);
  }

  /// Bytes allocated by allocate_on_host().
  std::size_t host_bytes = 0;
  std::shared_ptr<std::byte> allocate_on_host(std::size_t bytes) {
    host_bytes += bytes;
    return allocate(bytes);
  }
  std::shared_ptr<std::byte> allocate(std::size_t bytes) {
    // Allocates exactly this size, so that AddressSanitizer sees accesses beyond it.
    constexpr std::align_val_t alignment{256};
    auto* data =
        static_cast<std::byte*>(::operator new(std::max<std::size_t>(bytes, 1), alignment));
    std::memset(data, poison, bytes);
    executor::allocated({data, bytes});
    std::shared_ptr<std::byte> block(data, [](std::byte* old) {
      executor::freed(old);
      ::operator delete(old, alignment);
    });
    if (graph_ == nullptr) return block;
    graph_->memory.push_back(block);
    // The result does not share ownership with the graph, because a tensor with two owners is read-only.
    return {data, [](std::byte*) {}};
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) {
    issue([=] {
      if (bytes > 0) std::memcpy(to, from, bytes);
    });
  }
  void copy_from_host(std::byte* to, const std::byte* from, std::size_t bytes) {
    check_not_recording();
    copy(to, from, bytes);
  }
  void copy_to_host(std::byte* to, const std::byte* from, std::size_t bytes) {
    check_not_recording();
    copy(to, from, bytes);
  }
  void fill_zero(std::byte* to, std::size_t bytes) {
    issue([=] {
      if (bytes > 0) std::memset(to, 0, bytes);
    });
  }
  [[nodiscard]] dhp::HostCopy start_copy_to_host(const std::byte* from, std::size_t bytes) {
    check_not_recording();
    auto result = dhp::HostCopy::on_heap(bytes);
    copy(result.data(), from, bytes);
    return result;
  }
  void synchronize() { check_not_recording(); }

  /// Runs the work or, during a recording, keeps it for run().
  void issue(std::function<void()> work) {
    if (graph_ == nullptr) work();
    else graph_->work.push_back(std::move(work));
  }
  using Graph = EmulatedGraph;
  [[nodiscard]] EmulatedGraph record(auto&& body) {
    EmulatedGraph graph;
    graph_ = &graph;
    try {
      body();
    } catch (...) {
      graph_ = nullptr;
      throw;
    }
    graph_ = nullptr;
    return graph;
  }
  void run(const EmulatedGraph& graph) {
    ++graphs_run;
    for (const auto& work : graph.work) work();
  }
  [[nodiscard]] bool recording() const { return graph_ != nullptr; }

  /// Returns at least `count` fibers, whose stacks all blocks reuse.
  [[nodiscard]] Fiber* fibers(int count) {
    if (fiber_count_ < count) fibers_ = std::make_unique<Fiber[]>(dhp::detail::as_size(count));
    fiber_count_ = std::max(fiber_count_, count);
    return fibers_.get();
  }

  [[nodiscard]] std::size_t max_shared_bytes() const { return shared_bytes; }
  [[nodiscard]] int multiprocessors() const { return 132; }  // an H200's

  std::size_t shared_bytes = std::size_t{227} << 10;  // an H200's
  std::int64_t launches = 0;
  std::int64_t graphs_run = 0;

 private:
  void check_not_recording() const {
    dhp::check(graph_ == nullptr, "a step that is being recorded cannot wait for the host");
  }
  EmulatedGraph* graph_ = nullptr;
  std::shared_ptr<dhp::Trace> trace_;
  std::unique_ptr<Fiber[]> fibers_;
  int fiber_count_ = 0;
};

/// A run of one block, whose threads take turns.
class EmulatedBlockRun {
 public:
  EmulatedBlockRun(std::int64_t index, const dhp::detail::cuda::Grid& grid)
      : index_(index), grid_(grid), shared_(grid.shared_bytes / 16 + 1) {
    std::memset(shared_.data(), Emulated::poison, shared_.size() * 16);
  }

  /// Calls body(thread) for each thread, until all threads have ended.
  template <class Body>
  void run(Fiber* fibers, const Body& body) {
    fibers_ = fibers;
    body_ = [](const void* any, EmulatedBlockRun& self) { (*static_cast<const Body*>(any))(self); };
    argument_ = &body;
    for (current_ = 0; current_ < grid_.threads; ++current_) start(now());
    for (int done = 0; done < grid_.threads;) {
      bool moved = false;
      for (current_ = 0; current_ < grid_.threads; ++current_) {
        if (now().state != Fiber::State::ready) continue;
        scheduler_.switch_to(now().context);
        if (error_) std::rethrow_exception(error_);
        if (now().state == Fiber::State::done) ++done;
        moved = true;
      }
      moved |= release();
      dhp::check(moved || done == grid_.threads, "block ", index_,
                 ": some threads wait for others that never come");
    }
  }

  [[nodiscard]] std::int64_t index() const { return index_; }
  [[nodiscard]] const dhp::detail::cuda::Grid& grid() const { return grid_; }
  [[nodiscard]] int current() const { return current_; }
  [[nodiscard]] Fiber& fiber(int thread) { return fibers_[thread]; }
  [[nodiscard]] void* shared() { return shared_.data(); }
  void wait(Fiber::State state) {
    Fiber& mine = now();
    mine.state = state;
    mine.context.switch_to(scheduler_);
  }

 private:
  [[nodiscard]] Fiber& now() { return fiber(current_); }
  void start(Fiber& fiber) {
    if (!fiber.between_threads) fiber.context.begin(&enter, &fiber);
    fiber.between_threads = false;
    fiber.block = this;
    fiber.state = Fiber::State::ready;
  }
  static void enter(unsigned low, unsigned high) {
    Fiber& fiber = *reinterpret_cast<Fiber*>(std::uintptr_t{high} << 32 | low);
    for (;;) {
      fiber.block->run_thread();
      fiber.between_threads = true;
      fiber.context.switch_to(fiber.block->scheduler_);
    }
  }
  void run_thread() {
    try {
      body_(argument_, *this);
    } catch (...) {
      error_ = std::current_exception();
    }
    now().state = Fiber::State::done;
  }
  /// Continues the blocks and warps in which all threads wait.
  bool release() {
    using State = Fiber::State;
    const auto all = [&](int first, int last, State state) {
      for (int thread = first; thread < last; ++thread)
        if (fiber(thread).state != state) return false;
      return true;
    };
    const auto go = [&](int first, int last) {
      for (int thread = first; thread < last; ++thread) fiber(thread).state = State::ready;
      return true;
    };
    bool moved = false;
    for (int first = 0; first < grid_.threads; first += dhp::detail::cuda::warp_size)
      if (all(first, first + dhp::detail::cuda::warp_size, State::waits_for_warp))
        moved = go(first, first + dhp::detail::cuda::warp_size);
    if (all(0, grid_.threads, State::waits_for_block)) moved = go(0, grid_.threads);
    return moved;
  }

  std::int64_t index_;
  dhp::detail::cuda::Grid grid_;
  std::vector<dhp::detail::cuda::Pack<float, 4>> shared_;  // 16 bytes each
  Fiber* fibers_ = nullptr;
  void (*body_)(const void*, EmulatedBlockRun&) = nullptr;
  const void* argument_ = nullptr;
  int current_ = 0;
  Context scheduler_;
  std::exception_ptr error_;
};

/// The Block of an emulated thread.
class EmulatedBlock {
  using WarpWords = dhp::detail::cuda::WarpWords;
  static constexpr int warp_size = dhp::detail::cuda::warp_size;

 public:
  explicit EmulatedBlock(EmulatedBlockRun& run) : run_(run), thread_(run.current()) {}
  [[nodiscard]] std::int64_t index() const { return run_.index(); }
  [[nodiscard]] std::int64_t blocks() const { return run_.grid().blocks; }
  [[nodiscard]] int thread() const { return thread_; }
  [[nodiscard]] int threads() const { return run_.grid().threads; }
  void sync() { run_.wait(Fiber::State::waits_for_block); }
  template <class A>
  [[nodiscard]] A shuffle_xor(A value, int mask) {
    A theirs;
    exchange(value, [&](const auto& of) { theirs = of(thread_ % warp_size ^ mask); });
    return theirs;
  }
  template <bool transposes, class T>
  [[nodiscard]] WarpWords load_matrices(const T* row) {
    const int g = thread_ % warp_size / 4, t = thread_ % 4;
    dhp::check(reinterpret_cast<std::uintptr_t>(row) % 16 == 0, "a matrix is misaligned");
    const auto mine = dhp::detail::cuda::load<8>(row);
    WarpWords words;
    exchange(mine, [&](const auto& row_of) {
      for (int i = 0; i < 4; ++i) {
        const auto element = [&](int of, int at) {
          return std::uint32_t{row_of(8 * i + of).at[at].bits};
        };
        words.at[i] = transposes ? element(2 * t + 1, g) << 16 | element(2 * t, g)
                                 : element(g, 2 * t + 1) << 16 | element(g, 2 * t);
      }
    });
    return words;
  }
  template <class T>
  void multiply(float (&sums)[4], const WarpWords& left, std::uint32_t first,
                std::uint32_t second) {
    const int g = thread_ % warp_size / 4, t = thread_ % 4;
    struct Operands {
      float left[4][2], right[2][2];  // by word and half
    };
    Operands mine;
    const auto halves = [](std::uint32_t word, float(&to)[2]) {
      for (const int half : {0, 1}) {
        T value;
        value.bits = static_cast<std::uint16_t>(word >> 16 * half);
        to[half] = static_cast<float>(value);
      }
    };
    for (int word = 0; word < 4; ++word) halves(left.at[word], mine.left[word]);
    halves(first, mine.right[0]);
    halves(second, mine.right[1]);
    exchange(mine, [&](const auto& of) {
      double totals[4] = {};
      for (int four = 0; four < 4; ++four) {  // lanes of a quad hold two rows' columns
        const Operands rows = of(4 * g + four);
        for (int column = 0; column < 2; ++column) {
          const Operands columns = of(4 * (2 * t + column) + four);
          for (int word = 0; word < 2; ++word)
            for (int half = 0; half < 2; ++half)
              for (int row = 0; row < 2; ++row)
                totals[2 * row + column] +=
                    double{rows.left[2 * word + row][half]} * double{columns.right[word][half]};
        }
      }
      for (int e = 0; e < 4; ++e) sums[e] = static_cast<float>(sums[e] + totals[e]);
    });
  }
  template <class A>
  [[nodiscard]] A* shared() {
    return static_cast<A*>(run_.shared());
  }

 private:
  /// Calls body(of) after all lanes of the warp have called exchange(). of(lane) returns the value `mine` of a lane.
  template <class A, class Body>
  void exchange(const A& mine, const Body& body) {
    static_assert(sizeof(A) <= sizeof(Fiber::slot));
    std::memcpy(run_.fiber(thread_).slot, &mine, sizeof mine);
    run_.wait(Fiber::State::waits_for_warp);
    body([&](int lane) {
      A theirs;
      std::memcpy(&theirs, run_.fiber(thread_ / warp_size * warp_size + lane).slot, sizeof theirs);
      return theirs;
    });
    run_.wait(Fiber::State::waits_for_warp);  // all have read: the slots are free
  }

  EmulatedBlockRun& run_;
  int thread_;
};
static_assert(dhp::detail::cuda::Block<EmulatedBlock>);

template <class Kernel>
void launch(Emulated& dev, const dhp::detail::cuda::Grid& grid, const Kernel& kernel) {
  dhp::detail::cuda::check_grid<Kernel>(grid);
  dhp::detail::cuda::check_shared_memory(dev, grid, "the threads of a kernel's block need");
  static_assert(sizeof(Kernel) <= 4000, "arguments of a kernel must fit in 4 KB");
  ++dev.launches;
  dev.issue([&dev, grid, kernel] {
    if (executor::runs(
            {typeid(Kernel), std::as_bytes(std::span(&kernel, 1)), alignof(Kernel), grid}))
      return;
    Fiber* const fibers = dev.fibers(grid.threads);
    for (std::int64_t index = 0; index < grid.blocks; ++index) {
      EmulatedBlockRun run(index, grid);
      run.run(fibers, [&](EmulatedBlockRun& block_run) {
        EmulatedBlock block(block_run);
        kernel(block);
      });
    }
  });
}

static_assert(dhp::detail::KernelDevice<Emulated>);

}  // namespace tests
