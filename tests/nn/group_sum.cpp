// Layers split over the tensor axis on the Cpu.
#include <dhp/cpu.hpp>
#include <tests/nn/group_sum.hpp>

TEST_CASE("tensor-parallel layers agree with the serial ones") { TensorCases<Cpu>::check_all(); }
