// Build: what layers are constructed with. It numbers the uses of randomness and the parameters while the
// *whole* model is described, before stages are cut or weights are split: so masks and initial weights
// are the same in every layout.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/nn/parameter.hpp>

namespace dhp {

template <class Dev>
class Build {
 public:
  DType compute = DType::f32;  ///< type of weights and activations
  Comm<Dev> tensor;            ///< the tensor axis; a group of one by default
  Comm<Dev> data;              ///< the data axis, for synchronised batch norm only

  [[nodiscard]] std::uint32_t next_use() { return uses_++; }
  [[nodiscard]] Parameter<Dev> parameter(ParameterSpec spec) {
    return std::make_shared<ParameterState<Dev>>(std::move(spec), next_use(), parameters_++);
  }
  [[nodiscard]] DType accumulation() const { return accumulation_type(compute); }

 private:
  std::uint32_t uses_ = 1;
  int parameters_ = 0;
};

}  // namespace dhp
