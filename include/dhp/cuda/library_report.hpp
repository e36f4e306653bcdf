// What a device's libraries did and refused so far. Tests on a GPU check it; a program says what is new after a step.
#pragma once

#include <dhp/cuda/cublas_plan.hpp>
#include <dhp/cuda/library_use.hpp>
#include <dhp/cuda/plan_cache.hpp>

namespace dhp {

/// Every problem that cuBLASLt or cuDNN was asked for on this device, in the order of their names. What is never asked
/// of them (f64 convolutions, attention in f32) is not among it. refused_alone: and what they did neither.
[[nodiscard]] inline std::vector<cuda::LibraryUse> library_use(Cuda& dev,
                                                               bool refused_alone = false) {
  auto uses = dev.kept<cuda::CublasPlans>().uses(refused_alone);
  for (auto& use : dev.kept<cuda::CudnnPlans>().uses(refused_alone)) uses.push_back(std::move(use));
  return uses;
}

/// A sentence for the first refusal of each kind that this device has not told yet.
[[nodiscard]] inline std::vector<std::string> library_refusals(Cuda& dev) {
  return dev.kept<cuda::RefusalNews>().of(library_use(dev, true));
}

}  // namespace dhp
