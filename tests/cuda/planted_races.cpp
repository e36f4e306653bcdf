// Kernels with races, for the checker of races.cpp to find.
#include <tests/cuda/emulator.hpp>

#include <doctest/doctest.h>

#include <string>

namespace {

/// Every block writes the first element.
struct AcrossBlocks {
  float* y;
  template <class B>
  constexpr void operator()(B& block) const {
    if (block.thread() == 0) y[0] = static_cast<float>(block.index());
  }
};
/// A block reads what the next one writes.
struct BesideBlocks {
  float* y;
  template <class B>
  constexpr void operator()(B& block) const {
    if (block.thread() == 0) y[block.index()] = y[block.index() + 1];
  }
};
/// Threads write where others read, without a barrier if there is none.
template <bool barrier>
struct Rotate {
  float* y;
  template <class B>
  constexpr void operator()(B& block) const {
    auto* const shared = block.template shared<float>();
    const int next = (block.thread() + 1) % block.threads();
    shared[block.thread()] = 1;
    block.sync();
    y[block.index() * block.threads() + block.thread()] = shared[next];
    if constexpr (barrier) block.sync();
    shared[block.thread()] = 2;
  }
};

template <class Kernel>
std::string said_of(dhp::detail::cuda::Grid grid) {
  tests::Emulated dev;
  const auto memory = dev.allocate(1 << 12);
  try {
    launch(dev, grid, Kernel{reinterpret_cast<float*>(memory.get())});
  } catch (const dhp::Error& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("races between blocks and between threads are found, and barriers end them") {
  CHECK(said_of<AcrossBlocks>({2, 32, 0}).find("which thread 0 of block 0 has written") !=
        std::string::npos);
  CHECK(said_of<BesideBlocks>({2, 32, 0}).find("which a thread of block 0 has read") !=
        std::string::npos);
  CHECK(said_of<Rotate<false>>({1, 64, 256}).find("of shared memory, which thread") !=
        std::string::npos);
  CHECK(said_of<Rotate<true>>({3, 64, 256}) == "");
}

}  // namespace
