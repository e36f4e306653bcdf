// Batch norm's running statistics move once per step: by the mean of what the micro-batches of the global
// batch contributed, however they were spread over replicas.
#pragma once

#include <dhp/nn/parameter_store.hpp>
#include <dhp/ops/step.hpp>

namespace dhp {

/// value = (1 - momentum) * value + momentum * sum / micro_batches for every buffer of the store, where
/// sum is what its gradient holds after the reduction over replicas; nothing where the step does not go.
template <class Dev>
void apply_running_statistics(Dev& dev, ParameterStore<Dev>& store, double momentum,
                              std::int64_t micro_batches, In<Dev> state) {
  if (micro_batches == 0) return;
  for (const auto& parameter : store.parameters()) {
    if (!parameter->spec.buffer) continue;
    move_towards(dev, momentum, micro_batches, state, parameter->gradient, parameter->value);
  }
}

}  // namespace dhp
