// The cases of optim/ on the GPU: what an optimizer makes of weights, gradients and state that lie there.
#include <dhp/cuda/elementwise.hpp>
#include <dhp/cuda/optimizer.hpp>
#include <tests/cuda/gpu.hpp>
#include <tests/optim/adamw.hpp>
#include <tests/optim/lamb.hpp>
#include <tests/optim/lars.hpp>
#include <tests/optim/optimizer.hpp>
#include <tests/optim/sgd.hpp>

using namespace tests;

TEST_CASE("sgd: three steps are PyTorch's, in every precision; biases and norms do not decay") {
  SgdCases<Gpu>::steps();
}
TEST_CASE("adamw: three steps are PyTorch's, in every precision; biases and norms do not decay") {
  AdamWCases<Gpu>::steps();
}
TEST_CASE(
    "lars: three steps are the paper's, in every precision; biases and norms are not scaled") {
  LarsCases<Gpu>::steps();
}
TEST_CASE("lars: a weight split over the tensor axis has the trust ratio of the unsplit one") {
  LarsCases<Gpu>::split();
}
TEST_CASE(
    "lamb: three steps are the paper's, in every precision; biases and norms step as in Adam") {
  LambCases<Gpu>::steps();
}
TEST_CASE("lamb: a weight split over the tensor axis has the trust ratio of the unsplit one") {
  LambCases<Gpu>::split();
}
TEST_CASE("optimizer: padding between parameters stays zero") { OptimizerCases<Gpu>::padding(); }
TEST_CASE("optimizer: masters add up what is too small for 16 bits") {
  OptimizerCases<Gpu>::masters();
}
TEST_CASE("optimizer: weights that are set from outside are where the next step begins") {
  OptimizerCases<Gpu>::values_from_outside();
}
TEST_CASE("optimizer: a step that does not go changes neither weights nor state") {
  OptimizerCases<Gpu>::step_that_does_not_go();
}
