// SGD on the Cpu.
#include <dhp/cpu.hpp>
#include <tests/optim/sgd.hpp>

TEST_CASE("sgd: three steps are PyTorch's, in every precision; biases and norms do not decay") {
  SgdCases<Cpu>::steps();
}
TEST_CASE("sgd: without momentum there is no state to save") {
  Cpu dev;
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  ParameterStore<Cpu> store(dev, all_kinds(build), {});
  CHECK(Sgd<Cpu>(dev, store, {.weight_decay = 0.1}).state().empty());
}
