// Gradient checks of every layer on the Cpu, in fp64 at 1e-6.
#include <dhp/cpu.hpp>
#include <tests/support/layer_gradients.hpp>

TEST_CASE("gradients: linear, with and without bias") { LayerGradients<Cpu>().linear(); }
TEST_CASE("gradients: a feed-forward pair, bare and with its second bias, recomputed") {
  LayerGradients<Cpu>().feed_forward();
}
TEST_CASE("gradients: activations") { LayerGradients<Cpu>().activations(); }
TEST_CASE("gradients: dropout") { LayerGradients<Cpu>().dropout(); }
TEST_CASE("gradients: layer norm") { LayerGradients<Cpu>().layer_norm(); }
TEST_CASE("gradients: batch norm, plain and with relu") { LayerGradients<Cpu>().batch_norm(); }
TEST_CASE("gradients: batch norm with a residual, plain and with relu, around a body") {
  LayerGradients<Cpu>().residual_batch_norm();
}
TEST_CASE("gradients: convolutions") { LayerGradients<Cpu>().convolutions(); }
TEST_CASE("gradients: channels gathered and scattered in a group of one") {
  LayerGradients<Cpu>().channels();
}
TEST_CASE("gradients: pooling") { LayerGradients<Cpu>().pooling(); }
TEST_CASE("gradients: embedding") { LayerGradients<Cpu>().embedding(); }
TEST_CASE("gradients: self-attention with dropout") { LayerGradients<Cpu>().self_attention(); }
TEST_CASE("gradients: a decoder's layers") { LayerGradients<Cpu>().decoder(); }
TEST_CASE("gradients: adapters, of layers that are trained and of frozen ones") {
  LayerGradients<Cpu>().adapters(false, 0.3);
  LayerGradients<Cpu>().adapters(true, 0);
}
TEST_CASE("gradients: sequential, residual, recompute") { LayerGradients<Cpu>().sequential(); }
TEST_CASE("gradients: residual norm, with dropout and without, recomputed") {
  LayerGradients<Cpu>().residual_layer_norm();
}
TEST_CASE("gradients: losses") { LayerGradients<Cpu>().losses(); }
