// A kernel as decoded PTX. All operands of instructions are registers: constants, and the thread's position in the
// grid, are written into registers before the thread starts.
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
using Register = std::array<Bits, lanes>;  ///< one value per thread of a warp
using Mask = std::uint32_t;                ///< a bit per thread of a warp
inline constexpr Mask whole_warp = 0xffffffffu;

struct Instruction;
/// Applies the instruction to the registers of the threads in the mask.
using Operation = void (*)(Register* registers, const Instruction& instruction, Mask mask);

/// The registers that every kernel has.
enum Fixed : int { thread, threads, block, blocks, arguments, local, shared, carry, unused, fixed };

/// shuffle, matrices (ldmatrix) and product (mma) act on a whole warp.
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
  bool guard_value = true;  ///< value of the guard register for threads that act
  bool extends_sign = false;
  bool transposes = false;            ///< the loaded matrices
  std::uint8_t bytes = 0, count = 1;  ///< memory: bytes of an element; elements
  int guard = -1;
  Operation operation = nullptr;
  std::array<int, 4> to{};
  std::array<int, 10> from{};
  int address = 0;
  std::int64_t offset = 0;
  int target = 0;
  std::array<int, 2> file{}, line{};  ///< place in the source, and of its caller
};

struct Kernel {
  std::string name;
  std::shared_ptr<const std::vector<std::string>> files{};  ///< source files, by number
  std::vector<Instruction> code{};
  std::vector<std::pair<int, Bits>> constants{};
  int registers = fixed;
  std::size_t argument_bytes = 0, argument_alignment = 1, local_bytes = 0;
  int max_threads = 1024;
};

/// Throws for unknown statements.
[[nodiscard]] std::vector<Kernel> parse(std::istream& ptx);

/// Returns the operation of an opcode such as "fma.rn.f32". Throws for unknown opcodes.
[[nodiscard]] Operation operation_named(std::string_view opcode);

}  // namespace tests::ptx
