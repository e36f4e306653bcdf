// Kernels with races, for the checker of races.cpp to find.
#include <tests/cuda/ptx/said_of.hpp>

using namespace tests::faults;

TEST_CASE("races between blocks and between threads are found, and barriers end them") {
  CHECK(is_named<TwoBlocksWrite>("which thread 0 of block 0 has written"));
  CHECK(is_named<ReadsNextBlock>("which a thread of block 0 has read"));
  CHECK(is_named<MissingBarrier>("of shared memory, which thread"));
  CHECK(is_named<WriteAfterRead>("of shared memory, which thread"));
}
