// An executor runs the kernels of the emulated device. host_kernels.cpp leaves them to the emulator's threads;
// ptx/interpreter.cpp runs them as compiled by nvcc. A program links one of these.
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

/// Runs the grid. Returns false if the emulator shall run it. Throws if the kernel did something wrong.
[[nodiscard]] bool runs(const Launch& launch);
/// Registers memory that kernels may access.
void allocated(std::span<const std::byte> block);
void freed(const std::byte* block);

}  // namespace tests::executor
