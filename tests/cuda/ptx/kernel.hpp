// A kernel as nvcc compiles it: its PTX, decoded. Everything that an instruction reads is a register; constants and
// what a thread knows of itself are written into registers before it starts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <istream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tests::ptx {

inline constexpr int lanes = 32;
using Bits = std::uint64_t;
using Register = std::array<Bits, lanes>;  ///< of all threads of a warp
using Mask = std::uint32_t;                ///< a bit per thread of a warp
inline constexpr Mask whole_warp = 0xffffffffu;

struct Instruction;
/// What the threads in the mask do with their registers.
using Operation = void (*)(Register* registers, const Instruction& instruction, Mask mask);

/// The registers that a kernel always has.
enum Fixed : int { thread, threads, block, blocks, arguments, local, shared, carry, unused, fixed };

/// shuffle, matrices (ldmatrix) and product (mma) are of a whole warp.
enum class Kind : std::uint8_t {
  operation,
  load,
  store,
  shuffle,
  matrices,
  product,
  barrier,
  branch,
  exit
};
enum class Space : std::uint8_t { generic, global, shared, local, arguments };

struct Instruction {
  Kind kind = Kind::operation;
  Space space = Space::generic;
  bool guard_value = true;  ///< threads act whose guard has this value
  bool extends_sign = false;
  bool transposes = false;            ///< matrices that it loads
  std::uint8_t bytes = 0, count = 1;  ///< of memory: an element's, and elements
  int guard = -1;
  Operation operation = nullptr;
  std::array<int, 4> to{};
  std::array<int, 10> from{};
  int address = 0;
  std::int64_t offset = 0;
  int target = 0;
  std::array<int, 2> file{}, line{};  ///< of the source, and where that is called
};

struct Kernel {
  std::string name;
  std::shared_ptr<const std::vector<std::string>> files{};  ///< of the source, by number
  std::vector<Instruction> code{};
  std::vector<std::pair<int, Bits>> constants{};
  int registers = fixed;
  std::size_t argument_bytes = 0, argument_alignment = 1, local_bytes = 0;
  int most_threads = 1024;
};

/// Throws for what it does not know.
[[nodiscard]] std::vector<Kernel> parse(std::istream& ptx);

/// For "fma.rn.f32" and its like. Throws for what it does not know.
[[nodiscard]] Operation operation_named(std::string_view opcode);

}  // namespace tests::ptx
