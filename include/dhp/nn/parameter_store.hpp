// ParameterStore holds one rank's parameters in flat buffers, in layer order, 64-byte aligned and padded with zeros.
// All-reduce buckets are ranges of these buffers; optimizers and norms visit tables of the buffers' segments. With ZeRO
// most parameters are in sharded buckets, and the buffers hold this replica's shares. Frozen parameters are replicated
// and have no memory for gradients.
#pragma once

#include <dhp/nn/initial_values.hpp>
#include <dhp/nn/sharded_bucket.hpp>
#include <dhp/ops/elementwise.hpp>
#include <dhp/ops/optimizer.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

struct ParameterStoreOptions {
  DType compute = DType::f32;
  /// Sums gradients as exact integers, so that order changes no bit, and computes in tensor groups.
  bool deterministic = false;
  int tensor_groups = 0;   ///< number of tensor groups; 0: see ModelBuilder::group
  int context_groups = 0;  ///< number of row groups of a sample; 0: one for each context rank
  std::uint64_t seed = 0;  ///< seeds the initial values
  bool initialize = true;  ///< false: values are zero until a checkpoint is loaded
  Sharding sharding{};     ///< sharding over replicas
  /// Keeps optimizer state in host memory; kernels of the device update it over the bus.
  bool state_on_host = false;
};

template <class Dev>
class ParameterStore {
 public:
  ParameterStore() = default;
  /// Allocates and initializes this rank's parameters; duplicate handles are stored once. replica: this rank's position
  /// among the replicas that shard the store.
  [[gnu::cold]] ParameterStore(Dev& dev, const ParameterList<Dev>& parameters,
                               ParameterStoreOptions options, detail::ReplicaOf replica = {})
      : options_(options), replica_(replica) {
    if (replica.size == 1) options_.sharding.stage = ZeroStage::none;
    auto& redundancy = options_.sharding.redundancy;
    check(redundancy >= 0, "the redundancy of shares is 0 or more, got ", redundancy);
    redundancy = is_sharded() ? std::min(redundancy, replica.size - 1) : 0;
    for (const auto& parameter : parameters) {
      bool known = false;
      for (const auto& held : parameters_) known = known || held == parameter;
      if (known) continue;
      check(parameter->store_.expired(), "parameter ", parameter->spec.name,
            " is in the store of another model, which would lose it: make layers for each model");
      parameter->store_ = alive_ = alive_ ? alive_ : std::make_shared<int>();
      parameters_.push_back(parameter);
    }
    place(dev);
    for (const auto& parameter : parameters_) {
      by_first_.insert(first_from(parameter->range.first + 1), parameter.get());
      has_buffers_ = has_buffers_ || parameter->spec.buffer;
    }
    make_tables(dev);
    if (options_.initialize) initialize(dev);
    zero_gradients(dev);
  }

  [[nodiscard]] const ParameterList<Dev>& parameters() const { return parameters_; }
  [[nodiscard]] const ParameterStoreOptions& options() const { return options_; }
  [[nodiscard]] DType accumulation() const { return accumulation_type(options_.compute); }
  /// Returns the number of elements of a flat buffer, including padding.
  [[nodiscard]] std::int64_t size() const { return size_; }
  /// Returns the range in which this replica sums gradients: everything except copies of other replicas' shares.
  [[nodiscard]] Range summed() const { return {0, summed_}; }
  /// Returns the range of this replica's own shares or, if ahead > 0, of its copies of the shares of the replica
  /// `ahead` places after it (Sharding::redundancy).
  [[nodiscard]] Range shares(int ahead = 0) const {
    const auto length = summed_ - whole_;
    return {whole_ + ahead * length, summed_ + ahead * length};
  }

  /// The segments that optimizers update: all trained parameters; of sharded parameters, this replica's shares.
  [[nodiscard]] const detail::SegmentTable<Dev>& trained() const { return trained_; }
  /// The segments that norms count: this stage's trained parameters; replicated ones only on the first tensor rank.
  [[nodiscard]] const detail::SegmentTable<Dev>& counted(bool first_of_tensor_axis) const {
    return first_of_tensor_axis ? owned_ : owned_parts_;
  }
  /// The parts that make up trained().
  [[nodiscard]] const std::vector<detail::HeldPart<Dev>>& held() const { return held_; }

  /// The gradients that this replica holds, in the accumulation type.
  [[nodiscard]] ConstView<Dev> gradients() const { return gradients_; }
  [[nodiscard]] View<Dev> gradients() { return gradients_.mut(); }
  [[nodiscard]] View<Dev> gradients(Range range) { return part(gradients_, range); }
  /// Returns the buffers whose sums over replicas are the gradients of a range.
  [[nodiscard]] std::vector<View<Dev>> summands(Range range) {
    auto* bucket = bucket_with(range);
    return bucket != nullptr ? bucket->summands(range) : held_sums(range);
  }
  /// Called with all summands that this replica contributes to sums over replicas. first: flat index of the first
  /// summand in the store. times: 1, or -1 to subtract earlier sums that other summands contain.
  using SumWatcher = std::function<void(Dev&, const std::vector<View<Dev>>& summands,
                                        std::int64_t first, std::int64_t times)>;
  void watch_sums(SumWatcher watcher) { watcher_ = std::move(watcher); }
  /// Tells the watcher about a sum; reducers call this before each sum.
  void notify_sum(Dev& dev, const std::vector<View<Dev>>& summands, std::int64_t first,
                  std::int64_t times = 1) {
    if (watcher_) watcher_(dev, summands, first, times);
  }
  /// A flag, i32 [1]: nonzero after an exact sum overflowed. Empty without exact sums.
  [[nodiscard]] View<Dev> overflow() {
    return options_.deterministic ? overflow_.mut() : View<Dev>();
  }
  /// Converts exact sums to gradients, after replicas have reduced the sums and the overflow flag. An overflow makes
  /// the gradients NaN, so the step decision sees it.
  void finalize_gradients(Dev& dev, Range range) {
    if (!options_.deterministic) return;
    exact_finalize(dev, part(high_, range), part(low_, range), overflow_.view(),
                   part(gradients_, range));
  }

  /// Starts gradients at zero, lazily: a first contribution overwrites the gradient, and complete_gradients() zeroes
  /// gradients without contribution. Exact sums, shards and running statistics are zeroed immediately.
  void begin_gradients(Dev& dev) {
    const bool lazily = !options_.deterministic && !is_sharded();
    if (!lazily || has_buffers_) zero_gradients(dev);
    for (const auto& parameter : parameters_) parameter->begin(lazily);
  }
  void complete_gradients(Dev& dev, Range range) {
    for (auto at = first_from(range.first);
         at != by_first_.end() && (*at)->range.first < range.last; ++at)
      (*at)->complete(dev);
  }
  void zero_gradients(Dev& dev) {
    for (const auto& parameter : parameters_) parameter->fresh_ = false;
    const auto zero = [&](Tensor<Dev>& buffer) {
      if (buffer) dev.fill_zero(buffer.mut().bytes(), buffer.size_bytes());
    };
    zero(gradients_);
    zero(high_);
    zero(low_);
    zero(overflow_);
    for (auto& bucket : buckets_) bucket->zero_gradients(dev);
  }

  /// Returns whether replicas shard the store. Only the store's Replicas can then gather complete parameters.
  [[nodiscard]] bool is_sharded() const { return options_.sharding.stage != ZeroStage::none; }
  [[nodiscard]] const detail::ReplicaOf& replica() const { return replica_; }
  [[nodiscard]] std::vector<std::unique_ptr<detail::ShardedBucket<Dev>>>& buckets() {
    return buckets_;
  }
  /// Allocates the memory of summands(), even if no layer has added to it.
  void prepare_gradients(Dev& dev, Range range) {
    complete_gradients(dev, range);
    if (auto* bucket = bucket_with(range)) bucket->prepare_gradients(dev);
  }
  /// The leading elements that every replica holds, such as running statistics.
  [[nodiscard]] Range replicated_range() const { return {0, whole_}; }

  /// Updates batch norm's running statistics with the mean over the step's micro-batches, if the step is applied.
  void update_running_statistics(Dev& dev, double momentum, std::int64_t micro_batches,
                                 InView<Dev> state) {
    if (micro_batches == 0) return;
    update_moving_averages(dev, momentum, micro_batches, running_, state, gradients_.view());
  }

  /// Returns the weights and running statistics that this rank holds. own: leaves out sharded weights of other
  /// replicas, even while they are gathered.
  [[nodiscard]] std::vector<HeldPiece<Dev>> pieces(bool own = false) const {
    std::vector<HeldPiece<Dev>> pieces;
    const bool shares = own || options_.sharding.stage == ZeroStage::weights;
    for (const auto& parameter : parameters_)
      if (!shares || !is_cut(*parameter))
        pieces.push_back(detail::piece_of("", *parameter, 0, flat(*parameter)));
    for (const auto& part : held_)
      if (shares && part.sharded)
        pieces.push_back(
            detail::piece_of("", *part.parameter, part.first, part.value, true, part.copy));
    return pieces;
  }
  /// Returns the pieces of a buffer that is indexed like this store; `kind` names the buffer ("exp_avg"). narrow_only:
  /// leaves out parameters whose values have more than 16 bits.
  [[nodiscard]] std::vector<HeldPiece<Dev>> pieces(const std::string& kind, Tensor<Dev>& buffer,
                                                   bool narrow_only = false) const {
    std::vector<HeldPiece<Dev>> pieces;
    for (const auto& held : held_)
      if (!narrow_only || held.value.dtype() != accumulation())
        pieces.push_back(detail::piece_of("optimizer/" + kind + "/", *held.parameter, held.first,
                                          part(buffer, held.range), held.sharded, held.copy));
    return pieces;
  }

  /// Returns the bytes of this rank's weights and running statistics, including gathered weights.
  [[nodiscard]] std::size_t weight_bytes() const {
    auto bytes = values_.size_bytes();
    for (const auto& bucket : buckets_) bytes += bucket->weight_bytes();
    return bytes;
  }
  /// Returns the number of elements of the redundant shares in each flat buffer.
  [[nodiscard]] std::size_t redundant_elements() const { return detail::as_size(size_ - summed_); }
  /// Returns the bytes of gradients and exact sums, including summands that replicas have yet to reduce.
  [[nodiscard]] std::size_t gradient_bytes() const {
    auto bytes = gradients_.size_bytes() + high_.size_bytes() + low_.size_bytes();
    for (const auto& bucket : buckets_) bytes += bucket->gradient_bytes();
    return bytes;
  }

  /// Makes a flat buffer of zeros that is indexed like this store, for optimizer state.
  [[nodiscard]] Tensor<Dev> make_buffer(Dev& dev) const {
    if constexpr (requires { dev.allocate_on_host(std::size_t{}); })
      if (options_.state_on_host) {
        const auto bytes = detail::as_size(size_) * size_of(accumulation());
        Tensor<Dev> buffer(dev.allocate_on_host(bytes), accumulation(), {size_});
        dev.fill_zero(buffer.mut().bytes(), bytes);
        return buffer;
      }
    check(!options_.state_on_host,
          "optimizer state cannot be offloaded: this device's memory is that of the host");
    return Tensor<Dev>::persistent(dev, accumulation(), {size_});
  }
  /// Returns an unsharded parameter's part of a flat buffer, in the parameter's local shape.
  [[nodiscard]] static View<Dev> view_of(Tensor<Dev>& buffer,
                                         const ParameterState<Dev>& parameter) {
    return part(buffer, parameter.range).as(parameter.spec.local_shape());
  }
  [[nodiscard]] static View<Dev> part(Tensor<Dev>& buffer, Range range) {
    return buffer.mut().slice(range);
  }

 private:
  /// Returns the first parameter whose range begins at `first` or later.
  [[nodiscard]] auto first_from(std::int64_t first) {
    return std::lower_bound(
        by_first_.begin(), by_first_.end(), first,
        [](const auto* of, std::int64_t than) { return of->range.first < than; });
  }
  [[nodiscard]] detail::ShardedBucket<Dev>* bucket_with(Range range) {
    for (auto& bucket : buckets_)
      if (bucket->range().first <= range.first && range.last <= bucket->range().last)
        return bucket.get();
    return nullptr;
  }
  [[nodiscard]] static View<Dev> flat(const ParameterState<Dev>& parameter) {
    return parameter.value.as({parameter.value.count()});
  }
  /// Returns whether replicas shard the parameter. Norms (small) and layers on shares of rows stay replicated.
  [[nodiscard]] bool is_cut(const ParameterState<Dev>& parameter) const {
    return is_sharded() && parameter.spec.is_trained() &&
           value_type(parameter) == options_.compute &&
           parameter.spec.placement != Placement::shares;
  }

  [[gnu::cold]] void place(Dev& dev) {
    std::size_t value_bytes = 0;
    std::vector<std::size_t> value_offsets;
    for (const auto& parameter : parameters_) {
      value_offsets.push_back(value_bytes);
      if (is_cut(*parameter)) continue;
      const auto count = parameter->spec.local_shape().count();
      const auto padded = detail::padded_segment(count);
      const bool numbered = !parameter->spec.frozen;
      parameter->range = {size_, size_ + (numbered ? count : 0)};
      if (numbered) size_ += padded;
      value_bytes += detail::as_size(padded) * size_of(value_type(*parameter));
    }
    whole_ = size_;
    if (is_sharded()) make_buckets(dev);
    summed_ = size_;
    size_ += options_.sharding.redundancy * (summed_ - whole_);
    values_ = Tensor<Dev>::persistent(dev, DType::u8, {static_cast<std::int64_t>(value_bytes)});
    gradients_ = Tensor<Dev>::persistent(dev, accumulation(), {size_});
    if (options_.deterministic) {
      high_ = Tensor<Dev>::persistent(dev, DType::i64, {summed_});
      low_ = Tensor<Dev>::persistent(dev, DType::i64, {summed_});
      overflow_ = Tensor<Dev>(dev, DType::i32, {1});
    }
    for (std::size_t at = 0; at < parameters_.size(); ++at) {
      auto& parameter = *parameters_[at];
      parameter.sum_type_ = accumulation();
      if (options_.deterministic) parameter.overflow_ = overflow_.mut();
      if (is_cut(parameter)) continue;
      parameter.value = {values_.mut().bytes() + value_offsets[at], value_type(parameter),
                         parameter.spec.local_shape()};
      if (parameter.spec.frozen) continue;
      if (options_.deterministic)
        parameter.point_gradient(view_of(gradients_, parameter), view_of(high_, parameter),
                                 view_of(low_, parameter));
      else parameter.point_gradient(view_of(gradients_, parameter), {}, {});
    }
    for (auto& bucket : buckets_) bucket->hold_sums(held_sums(bucket->held()));
  }
  [[nodiscard]] std::vector<View<Dev>> held_sums(Range range) {
    if (!options_.deterministic) return {part(gradients_, range)};
    return {part(high_, range), part(low_, range)};
  }

  [[gnu::cold]] void make_buckets(Dev& dev) {
    ParameterList<Dev> cut;
    for (const auto& parameter : parameters_)
      if (is_cut(*parameter)) cut.push_back(parameter);
    auto lists = detail::bucket_lists(cut, options_.sharding, size_of(accumulation()));
    auto first = whole_;
    for (auto at = lists.size(); at-- > 0;) {
      buckets_.push_back(std::make_unique<detail::ShardedBucket<Dev>>(
          dev, std::move(lists[at]), options_.sharding, replica_, options_.compute,
          options_.deterministic, first, size_));
      first = buckets_.back()->range().last;
      size_ += buckets_.back()->share();
    }
  }

  [[gnu::cold]] void make_tables(Dev& dev) {
    for (const auto& parameter : parameters_)
      if (parameter->spec.is_trained() && !is_cut(*parameter))
        held_.push_back({parameter, parameter->range, 0, flat(*parameter)});
    for (int ahead = 0; ahead <= options_.sharding.redundancy; ++ahead)
      for (auto& bucket : buckets_)
        for (const auto& parameter : bucket->parameters()) {
          const auto part = bucket->held_of(*parameter, ahead);
          const auto first = bucket->held_first(*parameter, ahead) + ahead * (summed_ - whole_);
          if (part.size() > 0)
            held_.push_back({parameter,
                             {first, first + part.size()},
                             part.first,
                             bucket->held_weights(*parameter, ahead),
                             true,
                             ahead > 0});
        }
    std::vector<detail::Segment<Dev>> running;
    for (const auto& parameter : parameters_)
      if (parameter->spec.buffer)
        running.push_back({.range = parameter->range, .value = flat(*parameter)});
    running_ = {dev, options_.compute, std::move(running)};
    trained_ = table(
        dev, [](const auto&) { return true; }, true, true);
    owned_ = table(
        dev, [](const auto& parameter) { return parameter.owned; }, replica_.rank == 0);
    owned_parts_ = table(
        dev, [](const auto& parameter) { return parameter.owned && parameter.spec.is_split(); },
        replica_.rank == 0);
  }
  /// Makes a table of held parts. Its tiles are those of unsharded parameters, so sums over tiles are the same in any
  /// sharding. with_whole: includes unsharded parameters; with_redundant: includes redundant shares.
  [[nodiscard, gnu::cold]] detail::SegmentTable<Dev> table(
      Dev& dev, FunctionRef<bool(const ParameterState<Dev>&)> which, bool with_whole,
      bool with_redundant = false) const {
    std::vector<detail::TileSums> sums;
    std::map<const ParameterState<Dev>*, std::int64_t> first_sums;
    std::int64_t tiles = 0;
    for (const auto& parameter : parameters_) {
      if (!parameter->spec.is_trained() || !which(*parameter)) continue;
      const auto first = tiles;
      first_sums[parameter.get()] = first;
      tiles += detail::SegmentTable<Dev>::tiles_of(parameter->range.size());
      sums.push_back({first, tiles, parameter->index, parameter->spec.group});
    }
    std::vector<detail::Segment<Dev>> segments;
    for (const auto& held : held_)
      if (which(*held.parameter) && (with_redundant || !held.copy) &&
          (held.sharded || with_whole || !is_sharded()))
        segments.push_back(
            {held.range, held.value, held.parameter->index, held.parameter->spec.decays,
             first_sums.at(held.parameter.get()) + held.first / detail::segment_tile});
    return {dev, options_.compute, segments, sums};
  }

  [[nodiscard]] DType value_type(const ParameterState<Dev>& parameter) const {
    return parameter.spec.keep_fp32 || parameter.spec.buffer ? accumulation() : options_.compute;
  }

  [[gnu::cold]] void initialize(Dev& dev) {
    const bool shares = options_.sharding.stage == ZeroStage::weights;
    detail::InitialValues<Dev> values(dev, options_.seed);
    for (const auto& parameter : parameters_)
      if (!shares || !is_cut(*parameter)) values.write(*parameter, 0, flat(*parameter));
    for (const auto& held : held_)
      if (shares && held.sharded) values.write(*held.parameter, held.first, held.value);
  }

  ParameterStoreOptions options_;
  detail::ReplicaOf replica_;
  ParameterList<Dev> parameters_;
  std::vector<ParameterState<Dev>*> by_first_;  // sorted by first element
  bool has_buffers_ = false;
  std::vector<std::unique_ptr<detail::ShardedBucket<Dev>>> buckets_;
  std::vector<detail::HeldPart<Dev>> held_;
  std::int64_t whole_ = 0;             // elements that every replica holds
  std::int64_t summed_ = 0;            // whole_ plus the elements of this replica's shares
  std::int64_t size_ = 0;              // size of the buffers, including redundant shares
  detail::SegmentTable<Dev> running_;  // replicated statistics
  detail::SegmentTable<Dev> trained_, owned_;
  detail::SegmentTable<Dev> owned_parts_;  // owned segments split over the tensor axis
  Tensor<Dev> values_;                     // bytes, because parameters differ in type
  Tensor<Dev> gradients_, high_, low_, overflow_;
  SumWatcher watcher_;
  std::shared_ptr<const void> alive_;  // tells the parameters that this store exists
};

}  // namespace dhp
