// Gradient checks of every layer on the Cpu, in fp64 at 1e-6.
#include <dhp/cpu.hpp>
#include <tests/support/layer_gradients.hpp>

TEST_CASE("gradients of every kind of layer match finite differences") {
  LayerGradients<Cpu>::check_all();
}
