// A Cuda device over a fake of CUDA's runtime: copies through page-locked memory, and the memory that it holds. Needs no
// GPU; a program of its own, since it brings its own cudaMalloc and so on.
#include <tests/cuda/fake_cuda.hpp>
// The fake first: what follows calls it.
#include <dhp/device/cuda.hpp>
#include <tests/comm/ranks.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <random>
#include <vector>

namespace {

using namespace tests;

CudaOptions small() { return {.pinned_bytes = 1 << 12, .workspace_bytes = 256}; }

}  // namespace

TEST_CASE("device fake: copies of any sizes arrive whole, however far the GPU is behind") {
  Cuda dev(small());
  std::mt19937 random(7);
  std::uniform_int_distribution<std::size_t> sizes(1, (1 << 11));
  constexpr std::size_t copies = 200;
  std::vector<std::byte> sent;
  auto there = dev.allocate(copies << 11);
  for (std::size_t copy = 0; copy < copies; ++copy) {
    const std::vector<std::byte> piece(sizes(random), static_cast<std::byte>(copy));
    fake::of(dev.stream()).put([] { std::this_thread::sleep_for(std::chrono::microseconds(200)); });
    dev.copy_from_host(there.get() + sent.size(), piece.data(), piece.size());
    sent.insert(sent.end(), piece.begin(), piece.end());
  }
  std::vector<std::byte> arrived(sent.size());
  dev.copy_to_host(arrived.data(), there.get(), arrived.size());
  CHECK(arrived == sent);
}

TEST_CASE("device fake: a recorded step does not have its memory beside that of the step before") {
  Cuda dev(small());
  const auto before = fake::gpu_memory.held;
  const auto work = [&] {
    const auto first = dev.allocate(1 << 20), second = dev.allocate(3 << 20);
    dev.fill_zero(first.get(), 1 << 20);
    dev.copy(second.get(), first.get(), 1 << 20);
  };
  work();
  CHECK(fake::gpu_memory.held - before == 4 << 20);
  const auto graph = dev.record(work);
  CHECK(fake::gpu_memory.held - before == 4 << 20);
  dev.run(graph);
  CHECK(dev.memory().in_use_bytes() == 512);  // the workspace
  CHECK(dev.memory().held_bytes() == fake::gpu_memory.held);
  CHECK(dev.memory().most_held_bytes() == dev.memory().held_bytes());
  work();  // beside it after all
  CHECK(fake::gpu_memory.held - before == 8 << 20);
  dev.memory().trim();
  CHECK(dev.memory().held_bytes() == fake::gpu_memory.held);
  CHECK(dev.memory().most_held_bytes() - dev.memory().held_bytes() == 4 << 20);
}
