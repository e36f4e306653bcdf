// Gradient checks of every layer on the GPU, in fp64 at 1e-6: the kernels, and how layers put them together, beside
// central differences. Another device may be wrong alike.
#include <tests/cuda/all_ops.hpp>
#include <tests/cuda/gpu.hpp>
#include <tests/support/layer_gradients.hpp>

TEST_CASE("gradients of every kind of layer") {
  using Layers = LayerGradients<Gpu>;
  for (const auto check :
       {&Layers::linear, &Layers::feed_forward, &Layers::activations, &Layers::dropout,
        &Layers::layer_norm, &Layers::batch_norm, &Layers::residual_batch_norm,
        &Layers::convolutions, &Layers::channels, &Layers::pooling, &Layers::embedding,
        &Layers::self_attention, &Layers::decoder, &Layers::sequential,
        &Layers::residual_layer_norm, &Layers::losses})
    (Layers().*check)();
}
