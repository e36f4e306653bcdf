// Runs a kernel's PTX. The threads of a warp that are at one instruction execute it together, those that are furthest
// behind first, so that they meet again as early as they can. What a GPU would do wrong, or leave undefined, throws.
#pragma once

#include <dhp/cuda/block.hpp>
#include <tests/cuda/ptx/kernel.hpp>
#include <tests/cuda/ptx/races.hpp>

#include <random>
#include <span>
#include <vector>

namespace tests::ptx {

/// What launches did. A request is one instruction of one warp.
struct Counts {
  std::int64_t launches = 0;
  std::int64_t instructions = 0;  ///< of warps
  std::int64_t thread_instructions = 0;
  std::int64_t sectors = 0;          ///< of 32 bytes of global memory, by request
  std::int64_t sectors_at_best = 0;  ///< had the bytes of each request been side by side
  std::int64_t bytes_read = 0;       ///< of global memory, each byte once in a launch
  std::int64_t bytes_written = 0;
  std::int64_t cycles = 0;          ///< of shared memory: 32 banks of 4 bytes
  std::int64_t cycles_at_best = 0;  ///< had there been no two words of one bank

  Counts& operator+=(const Counts& other);
};

class Machine {
 public:
  using Memory = std::span<const std::byte>;
  /// memory: what there is, in the order of addresses.
  [[nodiscard]] Counts run(const Kernel& kernel, const dhp::detail::cuda::Grid& grid,
                           Memory arguments, std::vector<Memory> memory);
  [[nodiscard]] const Races& races() const { return races_; }

 private:
  struct Warp {
    int first = 0;  ///< its first thread
    std::vector<Register> registers;
    std::vector<std::byte> locals;
    std::array<int, lanes> at{};  ///< the next instruction of each thread
    Mask live = 0, waiting = 0;
  };
  using Addresses = std::array<std::uintptr_t, lanes>;

  void run_block(std::int64_t index);
  void begin(Warp& warp, std::int64_t index);
  /// Until all its threads wait for the block, or are done.
  void run_warp(Warp& warp);
  /// Those of its threads that are at `at`, until they part, or others are to be waited for.
  void run_threads(Warp& warp, int at, Mask active, int others_at);
  /// What all threads of a warp do together.
  void together(Warp& warp, const Instruction& next);
  void shuffle(Warp& warp, const Instruction& next) const;
  void load_matrices(Warp& warp, const Instruction& next);
  void access(Warp& warp, const Instruction& next, Mask mask);
  struct Found {
    Memory memory;
    Space space;
  };
  /// The memory that an address of a thread should be in.
  [[nodiscard]] Found find(const Warp& warp, const Instruction& next, int lane,
                           std::uintptr_t address);
  void count_sectors(std::span<std::uintptr_t> addresses, unsigned bytes);
  void count_cycles(const Addresses& addresses, Mask mask, unsigned bytes);
  /// FILE:LINE of what calls it, or of itself at depth 0.
  [[nodiscard]] std::string place_of(const Instruction& next, std::size_t depth = 1) const;
  template <class... What>
  [[noreturn]] void wrong(const Warp& warp, const Instruction& next, int lane,
                          const What&... what) const;

  const Kernel* kernel_ = nullptr;
  dhp::detail::cuda::Grid grid_;
  Memory arguments_;
  std::vector<Memory> memory_;
  std::vector<Memory> recent_;  ///< where each instruction found its last address
  std::vector<std::byte> shared_storage_;
  std::span<std::byte> shared_;
  std::int64_t block_ = 0;
  std::vector<Warp> warps_;
  Counts counts_;
  Races races_;
  std::minstd_rand random_;
};

}  // namespace tests::ptx
