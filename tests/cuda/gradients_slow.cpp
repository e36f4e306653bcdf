// Gradient checks of every layer on the GPU, in fp64 at 1e-6: the kernels, and how layers put them together, against
// moving each input and each weight, and not against another device, which may be wrong alike.
#include <tests/cuda/all_ops.hpp>
#include <tests/cuda/gpu.hpp>
#include <tests/support/layer_gradients.hpp>

#include <doctest/doctest.h>

using namespace tests;

TEST_CASE("gradients: linear, with and without bias") { LayerGradients<Gpu>().linear(); }
TEST_CASE("gradients: column- and row-parallel linear and bias in a group of one") {
  LayerGradients<Gpu>().parallel_linear();
}
TEST_CASE("gradients: a feed-forward pair, bare and with its second bias, recomputed") {
  LayerGradients<Gpu>().feed_forward();
}
TEST_CASE("gradients: activations") { LayerGradients<Gpu>().activations(); }
TEST_CASE("gradients: dropout") { LayerGradients<Gpu>().dropout(); }
TEST_CASE("gradients: layer norm") { LayerGradients<Gpu>().layer_norm(); }
TEST_CASE("gradients: batch norm, plain and with relu") { LayerGradients<Gpu>().batch_norm(); }
TEST_CASE("gradients: batch norm with a residual, plain and with relu, around a body") {
  LayerGradients<Gpu>().residual_batch_norm();
}
TEST_CASE("gradients: convolutions") { LayerGradients<Gpu>().convolutions(); }
TEST_CASE("gradients: channels gathered and scattered in a group of one") {
  LayerGradients<Gpu>().channels();
}
TEST_CASE("gradients: pooling") { LayerGradients<Gpu>().pooling(); }
TEST_CASE("gradients: embedding") { LayerGradients<Gpu>().embedding(); }
TEST_CASE("gradients: self-attention with dropout") { LayerGradients<Gpu>().self_attention(); }
TEST_CASE("gradients: sequential, residual, recompute") { LayerGradients<Gpu>().sequential(); }
TEST_CASE("gradients: residual norm, with dropout and without, recomputed") {
  LayerGradients<Gpu>().residual_layer_norm();
}
TEST_CASE("gradients: losses") { LayerGradients<Gpu>().losses(); }
