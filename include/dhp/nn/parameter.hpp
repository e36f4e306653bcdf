// Parameters: the named tensors of a model. They are only descriptions until the layout is known; then the store
// allocates their memory. Layers and the store share handles; a tied weight is one handle in two layers.
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
  std::string name;  ///< global, unique name, as in weight files
  Shape shape{};     ///< shape of the whole parameter
  Initializer init{};
  /// The placement on the tensor axis, from the model's table. On several ranks it determines split_dim and part.
  Placement placement = Placement::replicated;
  int split_dim = -1;      ///< dimension split over the tensor axis; -1: replicated
  Range part{};            ///< this rank's, or this piece's, range of split_dim
  int group = 0;           ///< index of the tensor group that has this piece
  int groups = 1;          ///< number of tensor groups
  bool decays = true;      ///< false for biases and norms: no weight decay, no trust ratio
  bool keep_fp32 = false;  ///< stays in the accumulation type if the model computes in 16 bits
  bool buffer = false;     ///< not trained: a running statistic of batch norm
  bool frozen = false;     ///< not trained: no gradient and no optimizer state
  FileOrder file_order = FileOrder::same;
  /// Number of parameters of the same shape that follow in the list. The store puts them directly behind this one if
  /// segments_are_adjacent allows it, so that one product reads them all.
  int fused = 0;

  [[nodiscard]] bool is_split() const { return split_dim >= 0; }
  [[nodiscard]] bool is_trained() const { return !buffer && !frozen; }
  [[nodiscard]] Shape local_shape() const {
    return is_split() ? shape.with(split_dim, part.size()) : shape;
  }
  /// Returns how many elements are contiguous in both the split and the unsplit tensor.
  [[nodiscard]] std::int64_t contiguous() const {
    return detail::CutDim(shape, split_dim, part).run;
  }
  /// Returns an element's index in the unsplit tensor from its index in this rank's part; both are row-major.
  [[nodiscard]] std::int64_t unsplit_index(std::int64_t element) const {
    return detail::CutDim(shape, split_dim, part).in_whole(element);
  }
};

namespace detail {
/// Returns a rank's part of a dimension that the tensor axis splits. what: the dimension's name in messages.
[[nodiscard]] inline Range tensor_part(const std::string& what, std::int64_t extent, int ranks,
                                       int rank) {
  check(extent >= ranks, what, " cannot be split over the tensor axis: ", extent, " for ", ranks,
        " ranks, and each needs at least one; choose a smaller tensor axis");
  return part_of(extent, ranks, rank);
}
template <class Dev>
class ShardedBucket;
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

template <class Dev>
class ParameterState {
 public:
  ParameterState(ParameterSpec description, std::uint32_t random_use, int number)
      : spec(std::move(description)), use(random_use), index(number) {}

  const ParameterSpec spec;
  const std::uint32_t use;  ///< the random stream of its initial values
  const int index;          ///< index in the whole model, over all stages
  // Set before the store is made.
  bool owned = true;    ///< false if another pipeline stage owns this tied weight
  bool tied = false;    ///< whether several stages use it
  bool listed = false;  ///< whether a layer or the loss of the model lists it

  // Set by the store.
  Range range;
  View<Dev> value;  ///< in the compute type; with spec.keep_fp32 or buffer, the accumulation type
  /// In the accumulation type; only accumulate() adds to it. Empty while a sharded bucket holds the gradient.
  ConstView<Dev> gradient;

  /// Adds a contribution to the gradient: write(view, beta) stores beta * view + contribution. beta is 0 for a step's
  /// first contribution. With exact sums, each contribution goes to temporary memory with beta 0 and is then added as
  /// integers. A frozen parameter ignores contributions: if is_trained() is false, callers need not compute one.
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
  /// Adds a contribution that is in memory already, in the accumulation type.
  void accumulate(Dev& dev, ConstView<Dev> contribution) {
    check(contribution.dtype() == sum_type_, "the gradients of parameter ", spec.name, " are ",
          sum_type_, ", and not ", contribution.dtype());
    if (!spec.frozen && prepare_exact(dev))
      return exact_accumulate(dev, contribution.as(spec.local_shape()), high_, low_, overflow_);
    accumulate(dev, [&](View<Dev> to, double beta) {
      const auto from = contribution.as(to.shape());
      if (beta == 0) detail::copy(dev, from, to);
      else add(dev, to, from, to);
    });
  }

  /// Returns whether nothing was added since ParameterStore::begin_gradients(); true for a frozen parameter.
  [[nodiscard]] bool is_fresh() const { return fresh_ || spec.frozen; }
  /// Returns whether something was added since ParameterStore::begin_gradients().
  [[nodiscard]] bool is_added_to() const { return added_; }
  /// Zeroes the gradient if nothing was added since ParameterStore::begin_gradients().
  void complete(Dev& dev) {
    if (std::exchange(fresh_, false)) dev.fill_zero(gradient_.bytes(), gradient_.size_bytes());
  }

 private:
  friend class ParameterStore<Dev>;
  friend class detail::ShardedBucket<Dev>;
  void begin(bool lazily) {
    fresh_ = lazily && !spec.buffer && !spec.frozen;
    added_ = false;
  }
  void point_gradient(View<Dev> own, View<Dev> high, View<Dev> low) {
    gradient_ = own;
    gradient = own;
    high_ = high;
    low_ = low;
  }
  /// Makes the gradient's memory ready; returns whether the gradient has exact sums.
  [[nodiscard]] bool prepare_exact(Dev& dev) {
    added_ = true;
    // In a bucket, `value` may be empty: the weights may be freed before a deferred gradient is added.
    check(bucket_ != nullptr || !value.empty() || spec.shape.count() == 0, "parameter ", spec.name,
          " has no memory on this rank");
    if (bucket_ != nullptr) bucket_->prepare_gradients(dev);
    return !high_.empty();
  }
  std::weak_ptr<const void> store_;  // expires with the store that holds the parameter
  DType sum_type_ = DType::f32;      // the accumulation type
  View<Dev> gradient_;
  View<Dev> high_;  // exact sums as two int64 limbs for each element, or empty
  View<Dev> low_;
  View<Dev> overflow_;  // i32 [1], one flag for all parameters of the store
  // The bucket that shards the parameter; null if the store holds the whole parameter.
  detail::ShardedBucket<Dev>* bucket_ = nullptr;
  bool fresh_ = false;  // the gradient has no value yet: the first contribution overwrites it
  bool added_ = false;  // something was added since begin_gradients()
};

template <class Dev>
using Parameter = std::shared_ptr<ParameterState<Dev>>;
template <class Dev>
using ParameterList = std::vector<Parameter<Dev>>;

/// Returns whether some of these parameters are trained.
template <class Dev>
[[nodiscard]] bool is_trained(const ParameterList<Dev>& parameters) {
  for (const auto& parameter : parameters)
    if (parameter != nullptr && parameter->spec.is_trained()) return true;
  return false;
}

namespace detail {

/// Number of a model's parameters, and of the tensor groups, each of which may have a piece of a parameter.
struct ParameterCount {
  ParameterCount(int parameters_in_model, int tensor_groups = 1)
      : parameters(parameters_in_model), groups(tensor_groups) {}
  int parameters, groups;
};

/// The part of a parameter whose optimizer state this rank holds.
template <class Dev>
struct HeldPart {
  Parameter<Dev> parameter;
  Range range{};           ///< the part's elements in the optimizer's state buffers
  std::int64_t first = 0;  ///< first element of the part
  View<Dev> value{};       ///< [range.size()]
  bool sharded = false;    ///< replicas shard this parameter
  bool copy = false;       ///< a redundant share of another replica
};
/// Describes the elements of a parameter from `first` on, and their memory `data`.
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
    beta = std::max(beta, beta_of_all);  // a frozen parameter's beta is 0
    if (views.size() == parameters.size()) write(views, beta);
    else accumulate_from(dev, parameters, views, write, beta);
  });
}

/// Adds to several parameters of one store in one operation: write(views, beta) gets one beta for all of them.
template <class Dev>
void accumulate_all(Dev& dev, const ParameterList<Dev>& parameters,
                    std::type_identity_t<WriteAll<Dev>> write) {
  // A tied weight may already have a contribution while the bias beside it has none.
  bool all_fresh = true;
  for (const auto& parameter : parameters) all_fresh = all_fresh && parameter->is_fresh();
  for (const auto& parameter : parameters)
    if (!all_fresh) parameter->complete(dev);
  std::vector<View<Dev>> views;
  accumulate_from<Dev>(dev, parameters, views, write);
}
}  // namespace detail

}  // namespace dhp
