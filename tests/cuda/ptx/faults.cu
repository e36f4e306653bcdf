// The faulty kernels, compiled by nvcc.
#include <dhp/cuda/launch.cuh>
#include <tests/cuda/ptx/faults.hpp>

namespace {

template <template <bool> class... Kernel>
void launch_all(dhp::Cuda& dev) {
  (launch(dev, tests::faults::grid, Kernel<false>{nullptr}), ...);
  (launch(dev, tests::faults::grid, Kernel<true>{nullptr}), ...);
}

}  // namespace

void compile_faults(dhp::Cuda& dev) {
  using namespace tests::faults;
  launch_all<MissingBarrier, WriteAfterRead, TwoBlocksWrite, ReadsNextBlock, ShuffleOfHalf,
             ShuffleInBranch, BarrierInBranch, ProductInBranch, MisalignedMatrix, MisalignedPack,
             IndexOf32Bits, BeyondSharedMemory, OtherArguments, RoundedByAssembler>(dev);
}
