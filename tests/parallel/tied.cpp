// Tied weights on the Cpu.
#include <dhp/cpu.hpp>
#include <tests/parallel/tied.hpp>

TEST_CASE("tied weights: gradients are summed over the stages that use them, each ready once") {
  TiedCases<Cpu>::sums();
}
TEST_CASE("tied weights: the first stage owns them, all start equal, and norms count them once") {
  TiedCases<Cpu>::owners();
}
