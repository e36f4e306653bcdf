// The executor that runs kernels as nvcc compiled them, and what it saw of them.
#pragma once

#include <tests/cuda/executor.hpp>
#include <tests/cuda/ptx/machine.hpp>

#include <map>
#include <mutex>
#include <string>

namespace tests::ptx {

class Interpreter {
 public:
  /// Reads a file of PTX.
  void load(const std::string& path);
  [[nodiscard]] bool runs(const executor::Launch& launch);
  void allocated(std::span<const std::byte> block);
  void freed(const std::byte* block);

  /// What all launches of compiled kernels did.
  [[nodiscard]] Counts total() const;
  /// A line per kernel of dhp, with what the launch of the most sectors did.
  void write_table(const std::string& path) const;
  /// Prints how many of dhp's kernels have run, and which have not; false if any.
  [[nodiscard]] bool all_ran() const;

 private:
  struct Compiled {
    Kernel kernel;
    Counts all{}, largest{};
  };
  mutable std::mutex mutex_;
  std::map<std::string, Compiled> kernels_;  ///< by the name of the struct
  std::map<std::string, int> not_compiled_;
  std::map<const std::byte*, std::size_t> memory_;
};

/// Kept forever: devices free their memory as late as at the end of the program.
[[nodiscard]] Interpreter& interpreter();

}  // namespace tests::ptx
