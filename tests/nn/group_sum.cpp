// Layers split over the tensor axis on the Cpu.
#include <dhp/cpu.hpp>
#include <tests/nn/group_sum.hpp>

TEST_CASE("column-parallel linear") { TensorCases<Cpu>::column_parallel(); }
TEST_CASE("row-parallel linear adds its bias once") { TensorCases<Cpu>::row_parallel(); }
TEST_CASE("column-parallel, activation, row-parallel") { TensorCases<Cpu>::column_and_row(); }
TEST_CASE("a feed-forward pair") { TensorCases<Cpu>::feed_forward(); }
TEST_CASE("a gated feed-forward layer") { TensorCases<Cpu>::gated_feed_forward(); }
TEST_CASE("vocabulary-parallel embedding") { TensorCases<Cpu>::embedding(); }
TEST_CASE("convolutions split by output and by input channels") {
  TensorCases<Cpu>::convolutions();
}
