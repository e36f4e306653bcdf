// ModelBuilder: layers are constructed with it. It numbers parameters and uses of randomness in the *whole* model,
// before stages are cut or weights are split, so masks and initial weights are the same in every layout.
#pragma once

#include <dhp/comm/mesh.hpp>
#include <dhp/nn/parameter_store.hpp>

#include <utility>

namespace dhp {

template <class Dev>
class ModelBuilder {
 public:
  Comm<Dev> tensor;  ///< splits the layers
  Comm<Dev> data;    ///< for synchronised batch norm only

  explicit ModelBuilder(Mesh<Dev>& mesh) : ModelBuilder(mesh.tensor(), mesh.data()) {}
  /// Without a mesh; Comm<Dev>{} is a group of one.
  explicit ModelBuilder(Comm<Dev> tensor_axis, Comm<Dev> data_axis = {})
      : tensor(std::move(tensor_axis)), data(std::move(data_axis)) {}

  [[nodiscard]] std::uint32_t next_use() { return uses_++; }
  /// split_dim: to be split over the tensor axis, or -1.
  [[nodiscard]] Parameter<Dev> parameter(ParameterSpec spec, int split_dim = -1) {
    if (split_dim >= 0) spec = split(std::move(spec), split_dim, tensor.size(), tensor.rank());
    return std::make_shared<ParameterState<Dev>>(std::move(spec), next_use(), parameters_++);
  }

 private:
  std::uint32_t uses_ = 1;
  int parameters_ = 0;
};

}  // namespace dhp
