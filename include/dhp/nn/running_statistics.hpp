// Batch norm's running statistics move once per step: by the mean of what the micro-batches of the global
// batch contributed, however they were spread over replicas.
#pragma once

#include <dhp/nn/parameter_store.hpp>

namespace dhp {

/// value = (1 - momentum) * value + momentum * sum / micro_batches for every buffer of the store, where
/// sum is what its gradient holds after the reduction over replicas.
template <class Dev>
void apply_running_statistics(Dev& dev, ParameterStore<Dev>& store, double momentum,
                              std::int64_t micro_batches) {
  if (micro_batches == 0) return;
  for (const auto& parameter : store.parameters()) {
    if (!parameter->spec.buffer) continue;
    scale(dev, 1 - momentum, parameter->value);
    axpy(dev, momentum / static_cast<double>(micro_batches), ConstView<Dev>(parameter->gradient),
         parameter->value);
  }
}

}  // namespace dhp
