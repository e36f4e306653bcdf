// Runs a kernel's PTX. Threads of a warp at the same instruction execute it together. The threads that are furthest
// behind run first, so that the warp converges early. Throws for all that a GPU would do wrong or leave undefined.
#pragma once

#include <dhp/cuda/block.hpp>
#include <tests/cuda/ptx/kernel.hpp>
#include <tests/cuda/ptx/races.hpp>

#include <random>
#include <span>
#include <vector>

namespace tests::ptx {

/// The counts of launches. A request is one instruction of one warp.
struct Counts {
  std::int64_t launches = 0;
  std::int64_t instructions = 0;  ///< executed by warps
  std::int64_t thread_instructions = 0;
  std::int64_t sectors = 0;          ///< sectors of 32 bytes of global memory, per request
  std::int64_t sectors_at_best = 0;  ///< if each request's bytes were adjacent
  std::int64_t bytes_read = 0;       ///< bytes of global memory, counted once per launch
  std::int64_t bytes_written = 0;
  std::int64_t cycles = 0;          ///< cycles of shared memory, with 32 banks of 4 bytes
  std::int64_t cycles_at_best = 0;  ///< without bank conflicts

  Counts& operator+=(const Counts& other);
};

class Machine {
 public:
  using Memory = std::span<const std::byte>;
  /// memory: all blocks, sorted by address.
  [[nodiscard]] Counts run(const Kernel& kernel, const dhp::detail::cuda::Grid& grid,
                           Memory arguments, std::vector<Memory> memory);
  [[nodiscard]] const Races& races() const { return races_; }

 private:
  struct Warp {
    int first = 0;  ///< number of its first thread
    std::vector<Register> registers;
    std::vector<std::byte> locals;
    std::array<int, lanes> at{};  ///< the next instruction of each thread
    Mask live = 0, waiting = 0;
  };
  using Addresses = std::array<std::uintptr_t, lanes>;

  void run_block(std::int64_t index);
  void begin(Warp& warp, std::int64_t index);
  /// Runs a warp until all its threads have ended or wait for the block.
  void run_warp(Warp& warp);
  /// Runs the `active` threads, which are at `at`, until they diverge or must wait for the others.
  void run_threads(Warp& warp, int at, Mask active, int others_at);
  /// Executes an instruction of all threads of the warp.
  void together(Warp& warp, const Instruction& next);
  void shuffle(Warp& warp, const Instruction& next) const;
  void load_matrices(Warp& warp, const Instruction& next);
  void access(Warp& warp, const Instruction& next, Mask mask);
  struct Found {
    Memory memory;
    Space space;
  };
  /// Returns the memory block that the thread's address should lie in.
  [[nodiscard]] Found find(const Warp& warp, const Instruction& next, int lane,
                           std::uintptr_t address);
  void count_sectors(std::span<std::uintptr_t> addresses, unsigned bytes);
  void count_cycles(const Addresses& addresses, Mask mask, unsigned bytes);
  /// Returns FILE:LINE of the instruction (depth 0) or of its caller.
  [[nodiscard]] std::string place_of(const Instruction& next, std::size_t depth = 1) const;
  template <class... What>
  [[noreturn]] void wrong(const Warp& warp, const Instruction& next, int lane,
                          const What&... what) const;

  const Kernel* kernel_ = nullptr;
  dhp::detail::cuda::Grid grid_;
  Memory arguments_;
  std::vector<Memory> memory_;
  std::vector<Memory> recent_;  ///< the block of each instruction's last address
  std::vector<std::byte> shared_storage_;
  std::span<std::byte> shared_;
  std::int64_t block_ = 0;
  std::vector<Warp> warps_;
  Counts counts_;
  Races races_;
  std::minstd_rand random_;
};

}  // namespace tests::ptx
