// Kernels with deliberate faults: the checks must name each fault.
#include <tests/cuda/emulator.hpp>
#include <tests/cuda/ptx/faults.hpp>
#include <tests/support/test.hpp>

using namespace tests::faults;

namespace {

/// Returns the error of the launch; empty if there is none.
template <class Kernel>
std::string error_of(std::vector<float>* result = nullptr) {
  Emulated dev;
  const auto memory = dev.allocate(words * sizeof(float));
  dev.fill_zero(memory.get(), words * sizeof(float));
  auto* const y = reinterpret_cast<float*>(memory.get());
  try {
    launch(dev, grid, Kernel{y});
  } catch (const dhp::Error& error) {
    return error.what();
  }
  if (result != nullptr) result->assign(y, y + words);
  return "";
}
/// Checks that the error of the faulty kernel contains these words, and that the correct kernel has no error.
template <template <bool> class Kernel>
bool is_named(const std::string& in_words) {
  const auto message = error_of<Kernel<true>>(), of_right = error_of<Kernel<false>>();
  MESSAGE(message);
  CHECK(of_right == "");
  return message.find(in_words) != std::string::npos;
}

}  // namespace

TEST_CASE("each fault of a compiled kernel is named, with the line of its source") {
  CHECK(is_named<MissingBarrier>("of shared memory, which thread"));
  CHECK(is_named<WriteAfterRead>("of shared memory, which thread"));
  CHECK(is_named<TwoBlocksWrite>("which thread 0 of block 0 has written"));
  CHECK(is_named<ReadsNextBlock>("which a thread of block 0 has read"));
  CHECK(is_named<ShuffleOfHalf>("a bit for each), not of the whole warp"));
  CHECK(is_named<ShuffleInBranch>("waits for a shuffle of its warp"));
  CHECK(is_named<BarrierInBranch>("waits at a barrier, which thread 40 does not reach"));
  CHECK(is_named<ProductInBranch>("waits for a product of its warp"));
  CHECK(is_named<MisalignedMatrix>("reads a matrix's row at 8 of 256 bytes of shared memory"));
  CHECK(is_named<MisalignedPack>("writes 16 bytes of global memory, misaligned by 4"));
  CHECK(is_named<IndexOf32Bits>("of 4096 bytes of global memory"));
  CHECK(is_named<BeyondSharedMemory>("writes 4 bytes at 256 of 256 bytes of shared memory"));
  CHECK(is_named<OtherArguments>("its arguments have 16 bytes aligned to 8 on the host, and 24"));
}

TEST_CASE("ptx: a wrong rounding of compiled code differs from the host's bits") {
  std::vector<float> expected, wrong, host;
  CHECK(error_of<RoundedByAssembler<false>>(&expected) == "");
  CHECK(error_of<RoundedByAssembler<true>>(&wrong) == "");
  for (int index = 0; index < words; ++index) {
    const int thread = index % grid.threads;
    host.push_back(index < grid.blocks * grid.threads
                       ? dhp::bf16(1 + static_cast<float>(thread) / 1000).bits
                       : 0);
  }
  CHECK(expected == host);
  CHECK(wrong != host);
}
