// Parameters: the named tensors of a model. First they are descriptions; memory comes when it is known which rank holds
// which part. Layers and the store share handles; a tied weight is one handle of two layers.
//
// ParameterStore: one rank's parameters in flat buffers, in layer order, each 64-byte aligned; padding is zero.
// All-reduce buckets are ranges of these buffers; optimizers and norms go over tables of their segments.
#pragma once

#include <dhp/nn/init.hpp>
#include <dhp/nn/pieces.hpp>
#include <dhp/ops/elementwise.hpp>
#include <dhp/ops/exact_sum.hpp>
#include <dhp/ops/segments.hpp>
#include <dhp/ops/step.hpp>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace dhp {

struct ParameterSpec {
  std::string name;  ///< global and unique: the name in weight files
  Shape shape{};     ///< global
  Initializer init{};
  int split_dim = -1;      ///< split over the tensor axis; -1: replicated
  Range part{};            ///< this rank's part of split_dim
  bool decays = true;      ///< false for biases and norms: no weight decay, no trust ratio
  bool keep_fp32 = false;  ///< in the accumulation type even if the model computes in 16 bits
  bool buffer = false;     ///< not trained: batch norm's running statistics
  FileOrder file_order = FileOrder::same;

  [[nodiscard]] bool is_split() const { return split_dim >= 0; }
  [[nodiscard]] Shape local_shape() const {
    return is_split() ? shape.with(split_dim, part.size()) : shape;
  }
  /// The number of elements that are contiguous both here and in the unsplit tensor.
  [[nodiscard]] std::int64_t run() const {
    if (!is_split()) return shape.count();
    std::int64_t inner = 1;
    for (int dim = split_dim + 1; dim < shape.rank(); ++dim) inner *= shape[dim];
    return part.size() * inner;
  }
  /// The index in the unsplit tensor of an element of this rank's part, both row-major.
  [[nodiscard]] std::int64_t unsplit_index(std::int64_t element) const {
    if (!is_split()) return element;
    // Seen as [outer, split, inner], only the middle index differs.
    const auto local = run();
    const auto inner = local / part.size();
    return element / local * shape[split_dim] * inner + part.first * inner + element % local;
  }
};

/// A rank's part of something split over the tensor axis; what: its name, for messages.
[[nodiscard]] inline Range tensor_part(const std::string& what, std::int64_t extent, int ranks,
                                       int rank) {
  check(extent >= ranks, what, " cannot be split over the tensor axis: ", extent, " for ", ranks,
        " ranks, and each needs at least one; choose a smaller tensor axis");
  return part_of(extent, ranks, rank);
}

/// Splits a dim of the spec into near-equal parts.
[[nodiscard]] inline ParameterSpec split(ParameterSpec spec, int dim, int parts, int index) {
  if (parts > 1) {
    spec.split_dim = dim;
    spec.part =
        tensor_part(concat("dimension ", dim, " of ", spec.name), spec.shape[dim], parts, index);
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
  const int index;          ///< its number in the whole model, over all stages
  /// False for a tied weight that another pipeline stage owns; set before the store is made.
  bool owned = true;

  // Set by the store.
  Range range;
  View<Dev> value;          ///< compute type (accumulation type if spec.keep_fp32)
  ConstView<Dev> gradient;  ///< accumulation type; only accumulate() adds to it

  /// Adds a contribution to the gradient: write(view, beta) stores beta * view + contribution. With order-free
  /// sums it goes to memory of its own, with beta 0, and is added as integers.
  template <class Write>
  void accumulate(Dev& dev, Write write) {
    check(!gradient.empty(), "parameter ", spec.name, " has no memory on this rank");
    if (high_.empty()) {
      write(gradient_, 1.0);
      return;
    }
    Tensor<Dev> fresh(dev, gradient_.dtype(), gradient_.shape());
    write(fresh.mut(), 0.0);
    exact_accumulate(dev, fresh.view(), high_, low_, overflow_);
  }

 private:
  friend class ParameterStore<Dev>;
  View<Dev> gradient_;
  View<Dev> high_;  // order-free sums: two int64 limbs per element; empty otherwise
  View<Dev> low_;
  View<Dev> overflow_;  // i32 [1], shared by the store
};

template <class Dev>
using Parameter = std::shared_ptr<ParameterState<Dev>>;
template <class Dev>
using ParameterList = std::vector<Parameter<Dev>>;

struct StoreOptions {
  DType compute = DType::f32;
  bool order_free = false;  ///< exact integer sums of gradients: their order changes no bit
  std::uint64_t seed = 0;   ///< of the initial values
};

template <class Dev>
class ParameterStore {
 public:
  /// No training step has this number.
  static constexpr std::uint32_t initial_step = 0xffffffffu;

  ParameterStore() = default;
  /// Allocates and initializes the parameters of this rank; stores a repeated handle once.
  ParameterStore(Dev& dev, const ParameterList<Dev>& parameters, StoreOptions options)
      : options_(options) {
    for (const auto& parameter : parameters)
      if (std::find(parameters_.begin(), parameters_.end(), parameter) == parameters_.end())
        parameters_.push_back(parameter);
    place(dev);
    make_tables(dev);
    for (const auto& parameter : parameters_) initialise(dev, *parameter);
    zero_gradients(dev);
  }

  [[nodiscard]] const ParameterList<Dev>& parameters() const { return parameters_; }
  [[nodiscard]] const StoreOptions& options() const { return options_; }
  [[nodiscard]] DType accumulation() const { return accumulation_type(options_.compute); }
  /// Elements of a flat buffer, including padding.
  [[nodiscard]] std::int64_t size() const { return size_; }

  /// For optimizers: all trained parameters.
  [[nodiscard]] const SegmentTable<Dev>& trained() const { return trained_; }
  /// For norms: trained parameters that this stage owns, replicated ones only on the first rank of the tensor axis.
  [[nodiscard]] const SegmentTable<Dev>& counted(bool first_of_tensor_axis) const {
    return first_of_tensor_axis ? owned_ : owned_parts_;
  }

  /// In the accumulation type.
  [[nodiscard]] ConstView<Dev> gradients() const { return gradients_; }
  [[nodiscard]] View<Dev> gradients() { return gradients_.mut(); }
  [[nodiscard]] View<Dev> gradients(Range range) { return part(gradients_, range); }
  /// The buffers whose sum over replicas gives the gradients of a range.
  [[nodiscard]] std::vector<View<Dev>> summands(Range range) {
    if (!options_.order_free) return {part(gradients_, range)};
    return {part(high_, range), part(low_, range)};
  }
  /// i32 [1]: not 0 after an order-free sum left its range; empty without such sums.
  [[nodiscard]] View<Dev> overflow() { return options_.order_free ? overflow_.mut() : View<Dev>(); }
  /// Turns order-free sums into gradients, after they and the flag were summed over replicas. After an overflow
  /// they are wrong and become NaN, which the decision on the step sees.
  void finalize_gradients(Dev& dev, Range range) {
    if (!options_.order_free) return;
    exact_finalize(dev, part(high_, range), part(low_, range), overflow_.view(),
                   part(gradients_, range));
  }

  void zero_gradients(Dev& dev) {
    const auto zero = [&](Tensor<Dev>& buffer) {
      if (buffer) dev.fill_zero(buffer.mut().bytes(), buffer.size_bytes());
    };
    zero(gradients_);
    zero(high_);
    zero(low_);
    zero(overflow_);
  }

  /// Moves batch norm's running statistics by the mean over the step's micro-batches, if the step is applied.
  void update_running_statistics(Dev& dev, double momentum, std::int64_t micro_batches,
                                 In<Dev> state) {
    if (micro_batches == 0) return;
    for (const auto& parameter : parameters_)
      if (parameter->spec.buffer)
        update_moving_average(dev, momentum, micro_batches, state, parameter->gradient,
                              parameter->value);
  }

  /// The values that this rank holds: of weights and of running statistics.
  [[nodiscard]] std::vector<HeldPiece<Dev>> pieces() const {
    std::vector<HeldPiece<Dev>> held;
    for (const auto& parameter : parameters_)
      held.push_back(piece_of("", *parameter, parameter->value.as({parameter->range.size()})));
    return held;
  }
  /// What a buffer in this store's numbering holds of its trained parameters; `kind` names it ("exp_avg").
  /// narrow_only: of those whose values have 16 bits.
  [[nodiscard]] std::vector<HeldPiece<Dev>> pieces(const std::string& kind, Tensor<Dev>& buffer,
                                                   bool narrow_only = false) const {
    std::vector<HeldPiece<Dev>> held;
    for (const auto& parameter : parameters_) {
      const bool narrow = parameter->value.dtype() != accumulation();
      if (parameter->spec.buffer || (narrow_only && !narrow)) continue;
      held.push_back(
          piece_of("optimizer/" + kind + "/", *parameter, part(buffer, parameter->range)));
    }
    return held;
  }

  /// A flat buffer of zeros with this store's numbering, for optimizer state.
  [[nodiscard]] Tensor<Dev> make_buffer(Dev& dev) const {
    return Tensor<Dev>::zeros(dev, accumulation(), {size_});
  }
  /// A parameter's part of such a buffer, in its local shape.
  [[nodiscard]] static View<Dev> of(Tensor<Dev>& buffer, const ParameterState<Dev>& parameter) {
    return part(buffer, parameter.range).as(parameter.spec.local_shape());
  }
  [[nodiscard]] static View<Dev> part(Tensor<Dev>& buffer, Range range) {
    return buffer.mut().slice(range.first, range.last);
  }

 private:
  void place(Dev& dev) {
    std::size_t value_bytes = 0;
    std::vector<std::size_t> value_offsets;
    for (const auto& parameter : parameters_) {
      const auto count = parameter->spec.local_shape().count();
      const auto padded = (count + segment_alignment - 1) / segment_alignment * segment_alignment;
      parameter->range = {size_, size_ + count};
      size_ += padded;
      value_offsets.push_back(value_bytes);
      value_bytes += static_cast<std::size_t>(padded) * size_of(value_type(*parameter));
    }
    values_ = Tensor<Dev>::zeros(dev, DType::u8, {static_cast<std::int64_t>(value_bytes)});
    gradients_ = Tensor<Dev>(dev, accumulation(), {size_});
    if (options_.order_free) {
      high_ = Tensor<Dev>(dev, DType::i64, {size_});
      low_ = Tensor<Dev>(dev, DType::i64, {size_});
      overflow_ = Tensor<Dev>(dev, DType::i32, {1});
    }
    for (std::size_t at = 0; at < parameters_.size(); ++at) {
      auto& parameter = *parameters_[at];
      parameter.value = {values_.mut().bytes() + value_offsets[at], value_type(parameter),
                         parameter.spec.local_shape()};
      parameter.gradient_ = of(gradients_, parameter);
      parameter.gradient = parameter.gradient_;
      if (options_.order_free) {
        parameter.high_ = part(high_, parameter.range);
        parameter.low_ = part(low_, parameter.range);
        parameter.overflow_ = overflow_.mut();
      }
    }
  }

  [[nodiscard]] static HeldPiece<Dev> piece_of(const std::string& prefix,
                                               const ParameterState<Dev>& parameter,
                                               View<Dev> data) {
    const auto& spec = parameter.spec;
    return {{.name = prefix + spec.name,
             .shape = spec.shape,
             .dtype = data.dtype(),
             .split_dim = spec.split_dim,
             .part = spec.part,
             .range = {0, parameter.range.size()},
             .file_order = spec.file_order},
            data,
            parameter.owned};
  }

  void make_tables(Dev& dev) {
    std::vector<Segment<Dev>> trained, owned, owned_parts;
    for (const auto& parameter : parameters_) {
      const auto& spec = parameter->spec;
      if (spec.buffer) continue;
      const Segment<Dev> segment{parameter->range, parameter->value.as({parameter->range.size()}),
                                 parameter->index, spec.decays};
      trained.push_back(segment);
      if (parameter->owned) owned.push_back(segment);
      if (parameter->owned && spec.is_split()) owned_parts.push_back(segment);
    }
    trained_ = {dev, options_.compute, trained};
    owned_ = {dev, options_.compute, owned};
    owned_parts_ = {dev, options_.compute, owned_parts};
  }

  [[nodiscard]] DType value_type(const ParameterState<Dev>& parameter) const {
    return parameter.spec.keep_fp32 || parameter.spec.buffer ? accumulation() : options_.compute;
  }

  /// By global index: a split parameter starts as its part of the unsplit one.
  void initialise(Dev& dev, ParameterState<Dev>& parameter) {
    const auto& spec = parameter.spec;
    const RandomStream stream{options_.seed, initial_step, parameter.use};
    std::vector<double> values(static_cast<std::size_t>(parameter.range.size()));
    for (std::size_t at = 0; at < values.size(); ++at)
      values[at] = spec.init(stream, spec.unsplit_index(static_cast<std::int64_t>(at)));
    const auto made = Tensor<Dev>::from_host(dev, spec.local_shape(), values);
    cast(dev, made.view(), parameter.value);
  }

  StoreOptions options_;
  ParameterList<Dev> parameters_;
  std::int64_t size_ = 0;
  SegmentTable<Dev> trained_;
  SegmentTable<Dev> owned_;
  SegmentTable<Dev> owned_parts_;  // those split over the tensor axis
  Tensor<Dev> values_;             // bytes: types differ between parameters
  Tensor<Dev> gradients_;
  Tensor<Dev> high_;
  Tensor<Dev> low_;
  Tensor<Dev> overflow_;
};

}  // namespace dhp
