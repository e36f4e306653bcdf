// Data parallelism on the Cpu.
#include <dhp/cpu.hpp>
#include <tests/parallel/data.hpp>

TEST_CASE_TEMPLATE("every replica has the gradient of the global mean", Options, Plain, Bucketed) {
  DataCases<Cpu>::global_mean<Options>();
}
TEST_CASE("gradients come out multiplied by the loss scale, losses do not") {
  DataCases<Cpu>::loss_scale();
}
