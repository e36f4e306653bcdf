// ShardedBucket: parameters that replicas shard (ZeRO: Rajbhandari et al. 2020, "ZeRO: memory optimizations toward
// training trillion parameter models", section 5). One reduce-scatter sums their gradients, one all-gather collects
// their weights. A share consists of whole pages of segment_tile elements, and no tile of a parameter crosses a page.
// Therefore sums over tiles have the same bits for any number of replicas.
#pragma once

#include <dhp/comm/event.hpp>
#include <dhp/core/append.hpp>
#include <dhp/nn/parameter.hpp>
#include <dhp/ops/segments.hpp>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace dhp {

/// The state that replicas shard; the numbers are the paper's stages.
enum class ZeroStage {
  none = 0,       ///< nothing: each replica holds everything
  optimizer = 1,  ///< optimizer state and master weights
  gradients = 2,  ///< also gradients
  weights = 3     ///< also weights, gathered before a layer runs and freed after it
};

struct Sharding {
  ZeroStage stage = ZeroStage::none;
  /// Minimum size of a bucket of gradients. From stage 2 on, max(all gradients / 32, 1 MiB) is enough.
  std::size_t bucket_bytes = std::size_t{25} << 20;
  /// Number of following replicas whose shares each replica also holds and updates. State survives the loss of that
  /// many neighboring replicas.
  int redundancy = 0;
};

namespace detail {
/// This replica's position among all replicas.
struct ReplicaOf {
  int rank = 0, size = 1;
  int sharing = 1;  ///< number of neighboring ranks that have the same samples
  /// Returns the largest number of a step's micro-batches that one replica computes.
  [[nodiscard]] std::int64_t share_of(std::int64_t micro_batches) const {
    return (micro_batches * sharing + size - 1) / size;
  }
};

/// Returns the first place from element `at` on where none of the parameter's tiles crosses a page.
template <class Dev>
[[nodiscard]] Range in_pages(std::int64_t at, const ParameterState<Dev>& parameter) {
  constexpr auto page = segment_tile;
  const auto padded = padded_segment(parameter.spec.local_shape().count());
  const auto group = padded * (1 + parameter.spec.fused);
  const auto together = group <= page ? group : padded;
  if (at % page != 0 && at % page + together > page) at += page - at % page;
  return {at, at + padded};
}

template <class Dev>
class ShardedBucket : NonCopyable {
 public:
  /// first: flat index of the bucket in the store; held: start of this replica's share in the buffers of optimizer
  /// state.
  [[gnu::cold]] ShardedBucket(Dev& dev, ParameterList<Dev> parameters, const Sharding& sharding,
                              ReplicaOf replica, DType compute, bool deterministic,
                              std::int64_t first, std::int64_t held)
      : parameters_(std::move(parameters)),
        stage_(sharding.stage),
        replica_(replica),
        compute_(compute),
        deterministic_(deterministic),
        range_(placed(parameters_, first, replica.size)),
        held_(held) {
    own_ = share_at(0);
    const auto resident =
        stage_ == ZeroStage::weights ? share() * (1 + sharding.redundancy) : range_.size();
    weights_ = Tensor<Dev>::persistent(dev, compute_, {resident});
    if (stage_ == ZeroStage::weights) free_weights();
    else point_values(weights_);
    if (stage_ == ZeroStage::optimizer) allocate_gradients(dev);
    for (const auto& parameter : parameters_) parameter->bucket_ = this;
  }

  [[nodiscard]] const ParameterList<Dev>& parameters() const { return parameters_; }
  [[nodiscard]] Range range() const { return range_; }
  [[nodiscard]] std::int64_t share() const { return range_.size() / replica_.size; }
  /// Returns this replica's share, as a range of the store's flat indices.
  [[nodiscard]] Range own() const { return {range_.first + own_.first, range_.first + own_.last}; }
  /// Returns this replica's share, as a range of the optimizer state buffers.
  [[nodiscard]] Range held() const { return {held_, held_ + share()}; }
  /// Returns which of the parameter's elements are in the share of the replica `ahead` places after this one.
  [[nodiscard]] Range held_of(const ParameterState<Dev>& parameter, int ahead) const {
    const auto in = in_bucket(parameter), share = share_at(ahead);
    const auto first = std::max(in.first, share.first);
    const auto last = std::max(first, std::min(in.last, share.last));
    return {first - in.first, last - in.first};
  }
  /// Returns where the elements of held_of() begin in the optimizer state buffers.
  [[nodiscard]] std::int64_t held_first(const ParameterState<Dev>& parameter, int ahead) const {
    return held_ + in_bucket(parameter).first + held_of(parameter, ahead).first -
           share_at(ahead).first;
  }
  /// Returns the weights of held_of(), which the optimizer updates.
  [[nodiscard]] View<Dev> held_weights(const ParameterState<Dev>& parameter, int ahead) {
    const auto begin = stage_ == ZeroStage::weights ? share_at(ahead).first - ahead * share() : 0;
    const auto part = held_of(parameter, ahead);
    const auto first = in_bucket(parameter).first + part.first - begin;
    return weights_.mut().slice(first, first + part.size());
  }

  [[nodiscard]] std::size_t weight_bytes() const {
    return weights_.size_bytes() + gathered_.size_bytes();
  }
  [[nodiscard]] std::size_t gradient_bytes() const {
    std::size_t bytes = 0;
    for (const auto* tensors : {&summands_, &leaving_})
      for (const auto& tensor : *tensors) bytes += tensor.size_bytes();
    return bytes;
  }

  // In stage 3, true only between allocate_weights and free_weights.
  [[nodiscard]] bool has_weights() const { return !parameters_.front()->value.empty(); }
  /// own_weights is the input of the all-gather, all_weights is its output.
  [[nodiscard]] View<Dev> own_weights() {
    return stage_ == ZeroStage::weights ? weights_.mut().slice(0, share())
                                        : weights_.mut().slice(own_);
  }
  [[nodiscard]] View<Dev> all_weights() {
    return stage_ == ZeroStage::weights ? gathered_.mut() : weights_.mut();
  }
  void allocate_weights(Dev& dev) {
    gathered_ = Tensor<Dev>(dev, compute_, {range_.size()});
    point_values(gathered_);
  }
  /// Registers the all-gather of the weights.
  void gathering(Event<Dev> event) {
    gather_under_way_ = std::move(event);
    gathering_ = true;
  }
  /// Waits for the registered all-gather. Call this before each use of the weights.
  void finish_gather(Dev& dev) {
    if (std::exchange(gathering_, false)) gather_under_way_.wait(dev);
  }
  void free_weights() {
    gathered_ = {};
    for (const auto& parameter : parameters_) parameter->value = {};
  }

  /// Allocates gradient memory; in stages 2 and 3, when a layer first adds to it. The memory starts with this replica's
  /// earlier sums of the step, so that the next reduce-scatter includes them.
  void prepare_gradients(Dev& dev) {
    if (!summands_.empty()) return;
    finish_sums(dev);
    allocate_gradients(dev);
    for (std::size_t at = 0; at < summands_.size(); ++at) {
      auto all = summands_[at].mut();
      dev.fill_zero(all.bytes(), all.size_bytes());
      copy(dev, held_sums_[at], all.slice(own_));
    }
  }
  /// Returns the local contributions to the gradients of a range: one parameter, or the whole bucket.
  [[nodiscard]] std::vector<View<Dev>> summands(Range range) {
    std::vector<View<Dev>> parts;
    for (auto& summand : summands_)
      parts.push_back(summand.mut().slice(range.first - range_.first, range.last - range_.first));
    return parts;
  }
  void zero_gradients(Dev& dev) {
    for (auto& summand : summands_) dev.fill_zero(summand.mut().bytes(), summand.size_bytes());
  }
  /// This replica's share of the sums; the store sets the memory.
  [[nodiscard]] const std::vector<View<Dev>>& held_sums() const { return held_sums_; }
  void hold_sums(std::vector<View<Dev>> sums) { held_sums_ = std::move(sums); }
  /// Registers reduce-scatters from summands to held sums. From stage 2 on, summands are freed when these finish.
  void summing(std::vector<Event<Dev>> events) {
    append(sums_under_way_, events);
    if (stage_ == ZeroStage::optimizer) return;
    for (auto& summand : summands_) leaving_.push_back(std::move(summand));
    summands_.clear();
    for (const auto& parameter : parameters_) parameter->point_gradient({}, {}, {});
  }
  void finish_sums(Dev& dev) {
    for (const auto& sum : sums_under_way_) sum.wait(dev);
    sums_under_way_.clear();
    leaving_.clear();
  }

 private:
  /// Assigns ranges to the parameters; returns the bucket's range.
  [[nodiscard]] static Range placed(const ParameterList<Dev>& parameters, std::int64_t first,
                                    int replicas) {
    std::int64_t at = 0;
    for (const auto& parameter : parameters) {
      const auto in = in_pages(at, *parameter);
      parameter->range = {first + in.first,
                          first + in.first + parameter->spec.local_shape().count()};
      at = in.last;
    }
    const auto whole = segment_tile * replicas;
    return {first, first + (at + whole - 1) / whole * whole};
  }
  [[nodiscard]] Range in_bucket(const ParameterState<Dev>& parameter) const {
    return {parameter.range.first - range_.first, parameter.range.last - range_.first};
  }
  [[nodiscard]] Range share_at(int ahead) const {
    const auto replica = (replica_.rank + ahead) % replica_.size;
    return {share() * replica, share() * (replica + 1)};
  }
  void point_values(Tensor<Dev>& all) {
    for (const auto& parameter : parameters_) {
      const auto in = in_bucket(*parameter);
      parameter->value = all.mut().slice(in).as(parameter->spec.local_shape());
    }
  }
  void allocate_gradients(Dev& dev) {
    const auto type = deterministic_ ? DType::i64 : accumulation_type(compute_);
    const Shape all{range_.size()};
    for (int at = 0; at < (deterministic_ ? 2 : 1); ++at)
      summands_.push_back(stage_ == ZeroStage::optimizer ? Tensor<Dev>::persistent(dev, type, all)
                                                         : Tensor<Dev>(dev, type, all));
    for (const auto& parameter : parameters_) {
      const auto in = in_bucket(*parameter);
      const auto summand = [&](std::size_t at) {
        return summands_[at].mut().slice(in).as(parameter->spec.local_shape());
      };
      if (deterministic_) parameter->point_gradient({}, summand(0), summand(1));
      else parameter->point_gradient(summand(0), {}, {});
    }
  }

  ParameterList<Dev> parameters_;
  ZeroStage stage_;
  ReplicaOf replica_;
  DType compute_;
  bool deterministic_;
  Range range_;
  std::int64_t held_;
  Range own_;                          // this replica's share of the bucket
  Tensor<Dev> weights_;                // all weights; in stage 3 this replica's share
  Tensor<Dev> gathered_;               // all weights, only in stage 3
  std::vector<Tensor<Dev>> summands_;  // all gradients, or the two limbs of their exact sums
  std::vector<Tensor<Dev>> leaving_;   // summands being reduced
  std::vector<View<Dev>> held_sums_;
  std::vector<Event<Dev>> sums_under_way_;
  Event<Dev> gather_under_way_{};
  bool gathering_ = false;
};

/// Cuts a list into buckets from its last parameter to its first, the order in which gradients get ready. Tied
/// parameters get their own buckets: stages sum them last, and they must not delay others. From stage 2 on, several
/// buckets are in memory at the same time, so each is a small part of the model.
template <class Dev>
[[nodiscard]] std::vector<ParameterList<Dev>> bucket_lists(const ParameterList<Dev>& parameters,
                                                           const Sharding& sharding,
                                                           std::size_t bytes_of_element) {
  std::vector<ParameterList<Dev>> lists;
  std::size_t bytes = 0, min_bytes = sharding.bucket_bytes;
  for (const auto& parameter : parameters)
    bytes += as_size(parameter->spec.local_shape().count()) * bytes_of_element;
  if (sharding.stage >= ZeroStage::gradients)
    min_bytes = std::min(min_bytes, std::max<std::size_t>(bytes / 32, 1 << 20));
  for (std::size_t at = parameters.size(); at-- > 0;) {
    const auto& parameter = parameters[at];
    const bool may_end = parameter->spec.fused == 0;  // the next one is not fused with it
    if (lists.empty() ||
        (may_end && (bytes >= min_bytes || lists.back().front()->tied != parameter->tied))) {
      lists.emplace_back();
      bytes = 0;
    }
    lists.back().insert(lists.back().begin(), parameter);
    bytes += as_size(parameter->spec.local_shape().count()) * bytes_of_element;
  }
  return lists;
}
}  // namespace detail

}  // namespace dhp
