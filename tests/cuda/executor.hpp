// Who executes the kernels of the emulated device. There are two: host_kernels.cpp leaves them to the emulator's
// threads, ptx/interpreter.cpp runs what nvcc made of them. A program links one of them.
#pragma once

#include <dhp/cuda/block.hpp>

#include <cstddef>
#include <span>
#include <typeinfo>

namespace tests::executor {

struct Launch {
  const std::type_info& kernel;
  std::span<const std::byte> arguments;
  std::size_t alignment;
  dhp::detail::cuda::Grid grid;
};

/// Runs the grid, or returns false and leaves that to the emulator. Throws if the kernel was wrong.
[[nodiscard]] bool runs(const Launch& launch);
/// The memory that kernels may access.
void allocated(std::span<const std::byte> block);
void freed(const std::byte* block);

}  // namespace tests::executor
