// ModelBuilder: layers are constructed with it. It numbers parameters and random streams in the *whole* model, before
// stages are cut or weights split, so masks and initial weights are the same in every layout.
#pragma once

#include <dhp/comm/mesh.hpp>
#include <dhp/nn/low_rank_options.hpp>
#include <dhp/nn/parameter_store.hpp>

#include <functional>
#include <set>
#include <string>
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

  /// Freezes the parameters made from now on, except those whose names `trained` accepts. Running statistics are
  /// still updated.
  void train_only(std::function<bool(const std::string& name)> accepts) {
    trains_ = std::move(accepts);
  }

  /// Adds adapters to the linear layers made from now on that the options name. train_only() decides what else is
  /// trained.
  void adapt(LowRankOptions options) { low_rank_ = std::move(options); }
  [[nodiscard]] const LowRankOptions& low_rank() const { return low_rank_; }
  /// The adapter of the layer that is being made.
  [[nodiscard]] bool adapts(const std::string& layer) {
    const auto* const entry = low_rank_.adapts(layer);
    if (entry != nullptr) adapted_.insert(*entry);
    return entry != nullptr;
  }
  /// Call after the model is described: throws where an adapter's name matches no layer.
  void check_adapters() const {
    for (const auto& entry : low_rank_.layers)
      check(adapted_.contains(entry), "no linear layer of the model is called ", entry,
            ", and none can be adapted; a name is the end of one such as "
            "encoder.layer.0.attention.self.query");
  }

  [[nodiscard]] std::uint32_t next_use() { return uses_++; }
  /// split_dim: split over the tensor axis; -1: replicated.
  [[nodiscard]] Parameter<Dev> parameter(ParameterSpec spec, int split_dim = -1) {
    spec.frozen = !spec.buffer && trains_ && !trains_(spec.name);
    if (split_dim >= 0) spec = split(std::move(spec), split_dim, tensor.size(), tensor.rank());
    return std::make_shared<ParameterState<Dev>>(std::move(spec), next_use(), parameters_++);
  }

 private:
  std::uint32_t uses_ = 1;
  int parameters_ = 0;
  std::function<bool(const std::string&)> trains_;
  LowRankOptions low_rank_;
  std::set<std::string> adapted_;  // entries that matched a layer
};

}  // namespace dhp
