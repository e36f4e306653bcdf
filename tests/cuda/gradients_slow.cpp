// Gradient checks of every layer on the GPU, in fp64 at 1e-6, against central differences. These would also find an
// error that the Cpu shares.
#include <tests/cuda/all_ops.hpp>
#include <tests/cuda/gpu.hpp>
#include <tests/support/layer_gradients.hpp>

TEST_CASE("gradients of every kind of layer match finite differences") {
  LayerGradients<Gpu>::check_all();
}
