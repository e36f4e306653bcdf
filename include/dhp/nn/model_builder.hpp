// ModelBuilder: layers are constructed with it. It numbers parameters and random streams in the *whole* model, before
// stages are cut or weights split, so masks and initial weights are the same in every layout.
#pragma once

#include <dhp/comm/mesh.hpp>
#include <dhp/nn/low_rank_options.hpp>
#include <dhp/nn/parameter_store.hpp>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

template <class Dev>
class Tape;
template <class Dev>
class ModelBuilder;
enum class Split;

namespace detail {
/// What a linear layer adds to its result beside its own: see nn/low_rank.hpp.
template <class Dev>
class Adapter {
 public:
  virtual ~Adapter() = default;
  /// Adds to y [rows, out], for x [rows, in].
  virtual void forward(Dev& dev, ConstView<Dev> x, View<Dev> y, Tape<Dev>& tape) = 0;
  /// Adds to dx [rows, in], for dy [rows, out] and the x of forward.
  virtual void backward(Dev& dev, const Tensor<Dev>& x, const Tensor<Dev>& dy, View<Dev> dx,
                        Tape<Dev>& tape) = 0;
  [[nodiscard]] virtual double flops(std::int64_t rows) const = 0;
  virtual void parameters(ParameterList<Dev>& out) const = 0;
};
/// Of the layer with this name and weight [out, in]; the model's builder says the rest.
template <class Dev>
[[nodiscard]] std::shared_ptr<Adapter<Dev>> make_low_rank(ModelBuilder<Dev>& build,
                                                          const std::string& name,
                                                          const ParameterSpec& weight, Split split);
}  // namespace detail

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

  /// Linear layers made from now on get adapters, if the options name them; what else is trained, train_only() says.
  void adapt(LowRankOptions options) {
    low_rank_ = std::move(options);
    make_adapter_ = detail::make_low_rank<Dev>;  // programs without adapters do not compile them
  }
  [[nodiscard]] const LowRankOptions& low_rank() const { return low_rank_; }
  /// Of a linear layer that is being made; null for most.
  [[nodiscard]] std::shared_ptr<detail::Adapter<Dev>> adapter(const std::string& layer,
                                                              const ParameterSpec& weight,
                                                              Split split) {
    const auto* const entry = low_rank_.adapts(layer);
    if (entry == nullptr) return nullptr;
    adapted_.push_back(*entry);
    return make_adapter_(*this, layer, weight, split);
  }
  /// Call after the model is described: throws where an adapter's name matches no layer.
  void check_adapters() const {
    for (const auto& entry : low_rank_.layers)
      check(std::find(adapted_.begin(), adapted_.end(), entry) != adapted_.end(),
            "no linear layer of the model is called ", entry,
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
  decltype(&detail::make_low_rank<Dev>) make_adapter_ = nullptr;
  std::vector<std::string> adapted_;  // its entries that have found a layer
};

}  // namespace dhp
