// Reports the problems that cuBLASLt and cuDNN ran or refused on a device, for GPU tests and for messages after a step.
#pragma once

#include <dhp/cuda/cublas_plan.hpp>
#include <dhp/cuda/library_use.hpp>
#include <dhp/cuda/plan_cache.hpp>

namespace dhp {

/// Returns all problems passed to cuBLASLt, then those passed to cuDNN. Unsupported kinds (f64 convolutions, f32
/// attention) are never passed. refused_alone: only refused problems.
[[nodiscard]] inline std::vector<detail::cuda::LibraryUse> library_use(Cuda& dev,
                                                                       bool refused_alone = false) {
  auto uses = dev.cached<detail::cuda::CublasPlans>().uses(refused_alone);
  for (auto& use : dev.cached<detail::cuda::CudnnPlans>().uses(refused_alone))
    uses.push_back(std::move(use));
  return uses;
}

/// Returns one sentence for each new kind of refusal, and one if a plan kept by an earlier run could not be used.
[[nodiscard]] inline std::vector<std::string> library_refusals(Cuda& dev) {
  auto sentences = dev.cached<detail::cuda::RefusalNews>().new_sentences(library_use(dev, true));
  if (auto warning = dev.cached<detail::cuda::Tuning>().plans.take_warning(); !warning.empty())
    sentences.push_back(std::move(warning));
  return sentences;
}

}  // namespace dhp
