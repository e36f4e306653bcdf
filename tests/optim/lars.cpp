// LARS on the Cpu.
#include <dhp/cpu.hpp>
#include <tests/optim/lars.hpp>

TEST_CASE("lars: three steps are the paper's; biases and norms are not scaled") {
  LarsCases<Cpu>::steps();
}
TEST_CASE("lars: a weight split over the tensor axis has the trust ratio of the unsplit one") {
  LarsCases<Cpu>::split();
}
