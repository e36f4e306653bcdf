// ParameterStore: one rank's parameters in flat buffers, in layer order, each 64-byte aligned. Padding is
// zero and counted nowhere. One bucket of an all-reduce and one slice of a checkpoint are ranges of the same
// numbering; an optimizer and the norms go over tables of its segments, which are made with it.
#pragma once

#include <dhp/nn/parameter.hpp>
#include <dhp/ops/elementwise.hpp>
#include <dhp/ops/segments.hpp>

#include <algorithm>
#include <vector>

namespace dhp {

struct StoreOptions {
  DType compute = DType::f32;
  bool order_free = false;  ///< sum gradients in integers, so that their order changes no bit
  std::uint64_t seed = 0;   ///< of the initial values
};

template <class Dev>
class ParameterStore {
 public:
  /// 64 bytes of a 16-bit type
  static constexpr std::int64_t alignment_elements = segment_alignment;
  /// No training step has this number.
  static constexpr std::uint32_t initial_step = 0xffffffffu;

  ParameterStore() = default;
  /// Takes the parameters of this rank (a handle that occurs twice is stored once), gives them memory
  /// and their initial values.
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
  /// Elements of the flat numbering, padding included.
  [[nodiscard]] std::int64_t size() const { return size_; }
  /// Elements of trained parameters on this rank, padding and buffers excluded.
  [[nodiscard]] std::int64_t trained_elements() const {
    std::int64_t count = 0;
    for (const auto& parameter : parameters_)
      if (!parameter->spec.buffer) count += parameter->range.size();
    return count;
  }

  /// What an optimizer goes over: all trained parameters.
  [[nodiscard]] const SegmentTable<Dev>& trained() const { return trained_; }
  /// What counts in norms on this rank: trained parameters that this stage owns; of replicas over the tensor axis
  /// those on its first rank.
  [[nodiscard]] const SegmentTable<Dev>& counted(bool first_of_tensor_axis) const {
    return first_of_tensor_axis ? owned_ : owned_parts_;
  }

  /// All gradients, in the accumulation type.
  [[nodiscard]] ConstView<Dev> gradients() const { return gradients_; }
  [[nodiscard]] View<Dev> gradients() { return gradients_.mut(); }
  /// Gradients of a range.
  [[nodiscard]] View<Dev> gradients(Range range) { return part(gradients_, range); }
  /// What has to be summed over replicas for the gradients of a range to be right.
  [[nodiscard]] std::vector<View<Dev>> summands(Range range) {
    if (!options_.order_free) return {part(gradients_, range)};
    return {part(high_, range), part(low_, range)};
  }
  /// i32 [1]: not 0 where an order-free sum left its range; empty otherwise.
  [[nodiscard]] View<Dev> overflow() { return options_.order_free ? overflow_.mut() : View<Dev>(); }
  /// After the sum over replicas, of the flag too: integers become gradients. What left its range was
  /// not added, so the gradients are wrong: they become NaN, which the verdict on the step sees.
  void settle(Dev& dev, Range range) {
    if (!options_.order_free) return;
    unfold(dev, part(high_, range), part(low_, range), overflow_.view(), part(gradients_, range));
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

  /// A fresh flat buffer of zeros with this store's numbering: optimizer state.
  [[nodiscard]] Tensor<Dev> make_buffer(Dev& dev) const {
    return Tensor<Dev>::zeros(dev, accumulation(), {size_});
  }
  /// The part of such a buffer that belongs to a parameter, in its local shape.
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
      const auto padded =
          (count + alignment_elements - 1) / alignment_elements * alignment_elements;
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
      parameter.gradient = of(gradients_, parameter);
      if (options_.order_free) {
        parameter.high = part(high_, parameter.range);
        parameter.low = part(low_, parameter.range);
        parameter.overflow = overflow_.mut();
      }
    }
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
    return parameter.spec.exact || parameter.spec.buffer ? accumulation() : options_.compute;
  }

  /// Values by global index: a split parameter takes its elements out of the unsplit stream.
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
  SegmentTable<Dev> owned_parts_;  // of those, the ones that are split over the tensor axis
  Tensor<Dev> values_;             // bytes: types differ between parameters
  Tensor<Dev> gradients_;
  Tensor<Dev> high_;
  Tensor<Dev> low_;
  Tensor<Dev> overflow_;
};

}  // namespace dhp
