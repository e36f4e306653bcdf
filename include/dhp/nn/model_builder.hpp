// ModelBuilder: what layers are constructed with. It numbers the uses of randomness and the parameters while the
// *whole* model is described, before stages are cut or weights are split: so masks and initial weights
// are the same in every layout.
#pragma once

#include <dhp/comm/mesh.hpp>
#include <dhp/nn/parameter_store.hpp>

#include <utility>

namespace dhp {

template <class Dev>
class ModelBuilder {
 public:
  Comm<Dev> tensor;  ///< the tensor axis, which shares the layers
  Comm<Dev> data;    ///< the data axis, for synchronised batch norm only

  explicit ModelBuilder(Mesh<Dev>& mesh) : ModelBuilder(mesh.tensor(), mesh.data()) {}
  /// For layers without a mesh; Comm<Dev>{} is a group of one.
  explicit ModelBuilder(Comm<Dev> tensor_axis, Comm<Dev> data_axis = {})
      : tensor(std::move(tensor_axis)), data(std::move(data_axis)) {}

  [[nodiscard]] std::uint32_t next_use() { return uses_++; }
  [[nodiscard]] Parameter<Dev> parameter(ParameterSpec spec) {
    return std::make_shared<ParameterState<Dev>>(std::move(spec), next_use(), parameters_++);
  }

 private:
  std::uint32_t uses_ = 1;
  int parameters_ = 0;
};

}  // namespace dhp
