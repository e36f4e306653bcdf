// Parameters: the named tensors of a model. They are descriptions until the layout is known; then the store allocates
// memory. Layers and the store share handles; a tied weight is one handle in two layers.
#pragma once

#include <dhp/core/function_ref.hpp>
#include <dhp/nn/init.hpp>
#include <dhp/nn/pieces.hpp>
#include <dhp/nn/placement.hpp>
#include <dhp/ops/elementwise.hpp>
#include <dhp/ops/exact_sum.hpp>
#include <dhp/tensor/tensor.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace dhp {

struct ParameterSpec {
  std::string name;  ///< global and unique: the name in weight files
  Shape shape{};     ///< global
  Initializer init{};
  /// On the tensor axis, by the model's table. With ranks to split over, split_dim and part follow from it.
  Placement placement = Placement::replicated;
  int split_dim = -1;      ///< split over the tensor axis; -1: replicated
  Range part{};            ///< range of split_dim that this rank, or this piece, has
  int group = 0;           ///< index of the tensor group that has this piece
  int groups = 1;          ///< number of tensor groups
  bool decays = true;      ///< false for biases and norms: no weight decay, no trust ratio
  bool keep_fp32 = false;  ///< kept in the accumulation type even if the model computes in 16 bits
  bool buffer = false;     ///< not trained: batch norm's running statistics
  bool frozen = false;     ///< not trained: it has no gradient and no optimizer state
  FileOrder file_order = FileOrder::same;
  /// How many parameters of the same shape follow in the list, stored directly behind this one where
  /// segments_are_adjacent allows, so that one product reads them all.
  int fused = 0;

  [[nodiscard]] bool is_split() const { return split_dim >= 0; }
  [[nodiscard]] bool is_trained() const { return !buffer && !frozen; }
  [[nodiscard]] Shape local_shape() const {
    return is_split() ? shape.with(split_dim, part.size()) : shape;
  }
  /// The number of elements that are contiguous in both the split and the unsplit tensor.
  [[nodiscard]] std::int64_t contiguous() const {
    if (!is_split()) return shape.count();
    std::int64_t inner = 1;
    for (int dim = split_dim + 1; dim < shape.rank(); ++dim) inner *= shape[dim];
    return part.size() * inner;
  }
  /// The index in the unsplit tensor of an element of this rank's part, both row-major.
  [[nodiscard]] std::int64_t unsplit_index(std::int64_t element) const {
    if (!is_split()) return element;
    // Seen as [outer, split, inner], only the middle index differs.
    const auto local = contiguous();
    const auto inner = local / part.size();
    return element / local * shape[split_dim] * inner + part.first * inner + element % local;
  }
};

namespace detail {
/// A rank's part of something split over the tensor axis. what: its name in messages.
[[nodiscard]] inline Range tensor_part(const std::string& what, std::int64_t extent, int ranks,
                                       int rank) {
  check(extent >= ranks, what, " cannot be split over the tensor axis: ", extent, " for ", ranks,
        " ranks, and each needs at least one; choose a smaller tensor axis");
  return part_of(extent, ranks, rank);
}
}  // namespace detail

[[nodiscard]] inline ParameterSpec split(ParameterSpec spec, int dim, int parts, int index) {
  if (parts > 1) {
    spec.split_dim = dim;
    spec.part =
        detail::tensor_part(concat(spec.name, " ", spec.shape, ", by ", spec.placement, ","),
                            spec.shape[dim], parts, index);
  }
  return spec;
}

template <class Dev>
class ParameterStore;
namespace detail {
template <class Dev>
class ShardedBucket;
}  // namespace detail

template <class Dev>
class ParameterState {
 public:
  ParameterState(ParameterSpec description, std::uint32_t random_use, int number)
      : spec(std::move(description)), use(random_use), index(number) {}

  const ParameterSpec spec;
  const std::uint32_t use;  ///< the random stream of its initial values
  const int index;          ///< index in the whole model, over all stages
  // For a tied weight; set before the store is made.
  bool owned = true;  ///< false where another pipeline stage owns it
  bool tied = false;  ///< several stages use it

  // Set by the store.
  Range range;
  View<Dev> value;  ///< compute type (accumulation type if spec.keep_fp32)
  /// In the accumulation type; only accumulate() adds to it. Empty where a sharded bucket holds it.
  ConstView<Dev> gradient;

  /// Adds a contribution to the gradient: write(view, beta) stores beta * view + contribution. beta is 0 for the first
  /// one of a step; with exact sums it goes to memory of its own, with beta 0, and is added as integers. A frozen
  /// parameter throws the contribution away: a caller need not compute it where is_trained() is false.
  void accumulate(Dev& dev, FunctionRef<void(View<Dev>, double)> write) {
    if (spec.frozen) {
      auto unwanted = Tensor<Dev>::zeros(dev, sum_type_, spec.local_shape());
      write(unwanted.mut(), 0.0);
    } else if (!prepare_exact(dev)) {
      write(gradient_, std::exchange(fresh_, false) ? 0.0 : 1.0);
    } else {
      Tensor<Dev> fresh(dev, sum_type_, spec.local_shape());
      write(fresh.mut(), 0.0);
      exact_accumulate(dev, fresh.view(), high_, low_, overflow_);
    }
  }
  /// Adds a contribution that exists, in the accumulation type.
  void accumulate(Dev& dev, ConstView<Dev> contribution) {
    if (!spec.frozen && prepare_exact(dev))
      return exact_accumulate(dev, contribution.as(spec.local_shape()), high_, low_, overflow_);
    accumulate(dev, [&](View<Dev> to, double beta) {
      const auto from = contribution.as(to.shape());
      if (beta == 0) dev.copy(to.bytes(), from.bytes(), from.size_bytes());
      else add(dev, to, from, to);
    });
  }

  /// True if nothing was added since ParameterStore::begin_gradients().
  [[nodiscard]] bool is_fresh() const { return fresh_ || spec.frozen; }
  /// Zeroes the gradient if nothing was added since ParameterStore::begin_gradients().
  void complete(Dev& dev) {
    if (std::exchange(fresh_, false)) dev.fill_zero(gradient_.bytes(), gradient_.size_bytes());
  }

 private:
  friend class ParameterStore<Dev>;
  friend class detail::ShardedBucket<Dev>;
  void point_gradient(View<Dev> own, View<Dev> high, View<Dev> low) {
    gradient_ = own;
    gradient = own;
    high_ = high;
    low_ = low;
  }
  /// Makes the memory of the gradient ready; whether it has exact sums.
  [[nodiscard]] bool prepare_exact(Dev& dev) {
    // A bucket's weights may be gone when a deferred gradient comes.
    check(bucket_ != nullptr || !value.empty() || spec.shape.count() == 0, "parameter ", spec.name,
          " has no memory on this rank");
    if (bucket_ != nullptr) bucket_->prepare_gradients(dev);
    return !high_.empty();
  }
  DType sum_type_ = DType::f32;  // the accumulation type
  View<Dev> gradient_;
  View<Dev> high_;  // exact sums: two int64 limbs per element; empty otherwise
  View<Dev> low_;
  View<Dev> overflow_;  // i32 [1], shared by the store
  // Null: the store holds the whole parameter.
  detail::ShardedBucket<Dev>* bucket_ = nullptr;
  bool fresh_ = false;  // no value yet: the first contribution overwrites the gradient
};

template <class Dev>
using Parameter = std::shared_ptr<ParameterState<Dev>>;
template <class Dev>
using ParameterList = std::vector<Parameter<Dev>>;

/// Whether some of these parameters have a gradient.
template <class Dev>
[[nodiscard]] bool is_trained(const ParameterList<Dev>& parameters) {
  for (const auto& parameter : parameters)
    if (parameter != nullptr && parameter->spec.is_trained()) return true;
  return false;
}

namespace detail {

/// The parameters of a model, and the pieces that each may have on the tensor axis.
struct ParameterCount {
  ParameterCount(int parameters_in_model, int tensor_groups = 1)
      : parameters(parameters_in_model), groups(tensor_groups) {}
  int parameters, groups;
};

/// The part of a parameter that this rank holds, with its optimizer state.
template <class Dev>
struct HeldPart {
  Parameter<Dev> parameter;
  Range range{};           ///< elements of the optimizer's state buffers
  std::int64_t first = 0;  ///< first element of the part
  View<Dev> value{};       ///< [range.size()]
  bool sharded = false;    ///< replicas shard this parameter
  bool copy = false;       ///< a redundant share of another replica
};
/// Elements of a parameter from `first` on, and where they are.
template <class Dev>
[[nodiscard]] HeldPiece<Dev> piece_of(const std::string& prefix,
                                      const ParameterState<Dev>& parameter, std::int64_t first,
                                      View<Dev> data, bool sharded = false, bool copy = false) {
  const auto& spec = parameter.spec;
  return {{.name = prefix + spec.name,
           .shape = spec.shape,
           .dtype = data.dtype(),
           .split_dim = spec.split_dim,
           .part = spec.part,
           .range = {first, first + data.count()},
           .file_order = spec.file_order},
          data,
          parameter.owned,
          sharded,
          copy};
}

template <class Dev>
using WriteAll = FunctionRef<void(const std::vector<View<Dev>>& views, double beta)>;

template <class Dev>
void accumulate_from(Dev& dev, const ParameterList<Dev>& parameters, std::vector<View<Dev>>& views,
                     WriteAll<Dev> write, double beta_of_all = 0) {
  parameters[views.size()]->accumulate(dev, [&](View<Dev> view, double beta) {
    views.push_back(view);
    beta = std::max(beta, beta_of_all);  // a frozen one's is 0
    if (views.size() == parameters.size()) write(views, beta);
    else accumulate_from(dev, parameters, views, write, beta);
  });
}

/// ParameterState::accumulate for several parameters of one store by one op: write(views, beta), with one beta for all.
template <class Dev>
void accumulate_all(Dev& dev, const ParameterList<Dev>& parameters,
                    std::type_identity_t<WriteAll<Dev>> write) {
  // A tied weight may have had another contribution before the bias beside it.
  bool all_fresh = true;
  for (const auto& parameter : parameters) all_fresh = all_fresh && parameter->is_fresh();
  for (const auto& parameter : parameters)
    if (!all_fresh) parameter->complete(dev);
  std::vector<View<Dev>> views;
  accumulate_from<Dev>(dev, parameters, views, write);
}
}  // namespace detail

}  // namespace dhp
