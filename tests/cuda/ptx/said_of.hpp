// Runs a kernel and returns the error of the checks.
#pragma once

#include <tests/cuda/emulator.hpp>
#include <tests/cuda/ptx/faults.hpp>
#include <tests/support/test.hpp>

namespace tests::faults {

/// Returns the error of the launch; empty if there is none.
template <class Kernel>
std::string said_of(std::vector<float>* result = nullptr) {
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
  const auto said = said_of<Kernel<true>>(), of_right = said_of<Kernel<false>>();
  MESSAGE(said);
  CHECK(of_right == "");
  return said.find(in_words) != std::string::npos;
}

}  // namespace tests::faults
