// LAMB on the Cpu.
#include <dhp/cpu.hpp>
#include <tests/optim/lamb.hpp>

TEST_CASE("lamb: three steps are the paper's; biases and norms step as in Adam") {
  LambCases<Cpu>::steps();
}
TEST_CASE("lamb: a weight split over the tensor axis has the trust ratio of the unsplit one") {
  LambCases<Cpu>::split();
}
