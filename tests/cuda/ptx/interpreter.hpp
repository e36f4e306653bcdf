// The executor that runs kernels as compiled by nvcc, and its record of them.
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

  /// Returns the counts of all launches.
  [[nodiscard]] Counts total() const;
  /// Writes a line for each kernel of dhp: the counts of its launch with the most sectors.
  void write_table(const std::string& path) const;
  /// Prints how many of dhp's kernels have run, and which have not. Returns whether all have.
  [[nodiscard]] bool all_ran() const;

 private:
  struct Compiled {
    Kernel kernel;
    Counts all{}, largest{};
  };
  mutable std::mutex mutex_;
  std::map<std::string, Compiled> kernels_;  ///< by the name of the kernel's struct
  std::map<std::string, int> not_compiled_;
  std::map<const std::byte*, std::size_t> memory_;
};

/// Never destroyed, because devices may free memory at the very end of the program.
[[nodiscard]] Interpreter& interpreter();

}  // namespace tests::ptx
