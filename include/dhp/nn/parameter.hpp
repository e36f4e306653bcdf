// Parameter: one named tensor of a model. First only a description (name, global shape, how it lies over
// the tensor axis); memory comes later, when it is known which rank holds which part (ParameterStore).
// The layer and the store hold the same handle; a tied weight is one handle held by two layers.
#pragma once

#include <dhp/nn/init.hpp>
#include <dhp/ops/fold.hpp>
#include <dhp/tensor/tensor.hpp>

#include <memory>
#include <string>
#include <vector>

namespace dhp {

/// How the axes of a weight are ordered in a weight file, where that differs from memory.
enum class FileOrder { same, out_kernel_in_as_out_in_kernel };

struct ParameterSpec {
  std::string name;  ///< global and unique: the name in weight files
  Shape shape{};     ///< global
  Initializer init{};
  int split_dim = -1;   ///< the dim that is split over the tensor axis; -1: replicated
  Range part{};         ///< this rank's part of split_dim
  bool decays = true;   ///< false for biases and norms: no weight decay, no trust ratio
  bool exact = false;   ///< kept in the accumulation type also when the model computes in 16 bits
  bool buffer = false;  ///< not trained: batch norm's running statistics
  FileOrder file_order = FileOrder::same;

  [[nodiscard]] bool is_split() const { return split_dim >= 0; }
  [[nodiscard]] Shape local_shape() const {
    return is_split() ? shape.with(split_dim, part.size()) : shape;
  }
  /// Elements that lie together here and in the unsplit tensor: a run. All of them where it is not split.
  [[nodiscard]] std::int64_t run() const {
    if (!is_split()) return shape.count();
    std::int64_t inner = 1;
    for (int dim = split_dim + 1; dim < shape.rank(); ++dim) inner *= shape[dim];
    return part.size() * inner;
  }
  /// Place in the unsplit tensor of an element of this rank's part, both row-major.
  [[nodiscard]] std::int64_t unsplit_index(std::int64_t element) const {
    if (!is_split()) return element;
    // Seen as [outer, split, inner], only the middle index differs.
    const auto local = run();
    const auto inner = local / part.size();
    return element / local * shape[split_dim] * inner + part.first * inner + element % local;
  }
};

/// Splits dim `dim` of the spec in near-equal parts; the identity when there is one part.
[[nodiscard]] inline ParameterSpec split(ParameterSpec spec, int dim, int parts, int index) {
  if (parts > 1) {
    spec.split_dim = dim;
    spec.part = part_of(spec.shape[dim], parts, index);
  }
  return spec;
}

template <class Dev>
class ParameterState {
 public:
  ParameterState(ParameterSpec description, std::uint32_t random_use, int number)
      : spec(std::move(description)), use(random_use), index(number) {}

  const ParameterSpec spec;
  const std::uint32_t use;  ///< its stream of initial values
  const int index;          ///< its number in the whole model, over all stages
  /// False for the replica of a tied weight on another pipeline stage; known before the store is made.
  bool owned = true;

  // Set by the store. Element range in the flat buffers, and views into them.
  Range range;
  View<Dev> value;     ///< compute type (accumulation type if spec.exact)
  View<Dev> gradient;  ///< accumulation type
  View<Dev> high;      ///< order-free sums: two int64 limbs per element; empty otherwise
  View<Dev> low;
  View<Dev> overflow;  ///< i32 [1], shared by the store

  /// Adds one contribution of one micro-batch to the gradient. write(view, beta) stores
  /// beta * view + contribution. With order-free sums it is written fresh and folded into integers.
  template <class Write>
  void accumulate(Dev& dev, Write write) {
    check(!gradient.empty(), "parameter ", spec.name, " has no memory on this rank");
    if (high.empty()) {
      write(gradient, 1.0);
      return;
    }
    Tensor<Dev> fresh(dev, gradient.dtype(), gradient.shape());
    write(fresh.mut(), 0.0);
    fold(dev, fresh.view(), high, low, overflow);
  }
};

template <class Dev>
using Parameter = std::shared_ptr<ParameterState<Dev>>;
template <class Dev>
using ParameterList = std::vector<Parameter<Dev>>;

}  // namespace dhp
