// AdamW on the Cpu.
#include <dhp/cpu.hpp>
#include <tests/optim/adamw.hpp>

TEST_CASE("adamw: three steps are PyTorch's, in every precision; biases and norms do not decay") {
  AdamWCases<Cpu>::steps();
}
