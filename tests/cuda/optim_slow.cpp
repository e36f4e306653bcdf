// The cases of optim/ on the GPU: what an optimizer makes of weights, gradients and state that lie there.
#include <dhp/cuda/elementwise.hpp>
#include <dhp/cuda/optimizer.hpp>
#include <dhp/cuda/tree_sum.hpp>
#include <tests/cuda/gpu.hpp>
#include <tests/optim/adamw.hpp>
#include <tests/optim/lamb.hpp>
#include <tests/optim/lars.hpp>
#include <tests/optim/optimizer.hpp>
#include <tests/optim/sgd.hpp>

TEST_CASE("three steps of every optimizer; a split weight has the trust ratio of the unsplit one") {
  for (const auto check : {&SgdCases<Gpu>::steps, &AdamWCases<Gpu>::steps, &LarsCases<Gpu>::steps,
                           &LarsCases<Gpu>::split, &LambCases<Gpu>::steps, &LambCases<Gpu>::split})
    check();
}
TEST_CASE("optimizer: padding, masters, values from outside, skipped steps, prepare()") {
  OptimizerCases<Gpu>::check_all();
}
