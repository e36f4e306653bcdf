// Optimizer: updates the values of a parameter store from its summed gradients. The optimizer state (momenta, master
// weights) is kept in named flat buffers, indexed like the store, so that a checkpoint loads under another layout.
// Norms computes norms for clipping, LARS, LAMB and metrics. A norm counts each element once: split weights are summed
// over the tensor axis; replicated and tied weights are counted by one rank.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/nn/replicas.hpp>
#include <dhp/ops/optimizer.hpp>
#include <dhp/ops/tree_sum.hpp>

#include <string>
#include <utility>
#include <vector>

namespace dhp {

template <class Dev>
class Norms {
 public:
  /// replicas: DataParallel::replicas(), which may be null.
  Norms(Comm<Dev> tensor, Comm<Dev> pipeline, detail::ParameterCount in_model,
        Replicas<Dev>* replicas = nullptr)
      : tensor_(std::move(tensor)),
        pipeline_(std::move(pipeline)),
        parameters_(in_model.parameters),
        groups_(in_model.groups),
        adds_(detail::TreeSum(groups_, {0, groups_}).adds()),
        replicas_(replicas) {}
  [[nodiscard]] const Replicas<Dev>* replicas() const { return replicas_; }

  /// Returns the squared norm of each parameter of the model, f64 [parameters] by ParameterState::index, the same on
  /// every rank. x is indexed like the store and has its accumulation type; buffers are excluded. Collective over the
  /// tensor axis and the pipeline axis.
  [[nodiscard]] Tensor<Dev> squares(Dev& dev, ParameterStore<Dev>& store, ConstView<Dev> x) {
    return squares(dev, store, 1, [&](const detail::SegmentTable<Dev>& counted, View<Dev> sums) {
      detail::tile_squares(dev, counted, x, sums);
    });
  }
  [[nodiscard]] Tensor<Dev> gradient_squares(Dev& dev, ParameterStore<Dev>& store) {
    return squares(dev, store, store.gradients());
  }
  /// Returns the squared norms of the weights, or of the master weights if the values have 16 bits.
  [[nodiscard]] Tensor<Dev> weight_squares(Dev& dev, ParameterStore<Dev>& store,
                                           ConstView<Dev> masters) {
    return squares(dev, store, 1, [&](const detail::SegmentTable<Dev>& counted, View<Dev> sums) {
      detail::tile_weight_squares(dev, counted, masters, sums);
    });
  }
  /// Returns `lists` lists of squared norms, f64 [lists * parameters], with as many collectives as for one list.
  /// add(counted, sums) must write the sums of this rank's tiles to the zeroed sums, f64 [lists * counted.sum_count()].
  [[nodiscard]] Tensor<Dev> squares(
      Dev& dev, ParameterStore<Dev>& store, std::int64_t lists,
      FunctionRef<void(const detail::SegmentTable<Dev>&, View<Dev>)> add) {
    detail::check_has_replicas(store, replicas_);
    const auto& counted = store.counted(tensor_.rank() == 0);
    const auto tiles = counted.sum_count();
    auto sums = Tensor<Dev>::zeros(dev, DType::f64, {lists * tiles});
    add(counted, sums.mut());
    if (replicas_ != nullptr) replicas_->sum(dev, sums.mut());
    const auto count = lists * parameters_;
    auto squares = Tensor<Dev>::zeros(dev, DType::f64, {groups_ * count});
    for (std::int64_t list = 0; list < lists; ++list)
      detail::sum_tiles(dev, counted, sums.view().slice(list * tiles, (list + 1) * tiles),
                        squares.mut().slice(list * parameters_, squares.count()), count);
    // With tensor groups, only one rank has a nonzero value per entry, so these all-reduces are exact.
    if (tensor_.size() > 1) tensor_.all_reduce(dev, squares.mut()).wait();
    if (pipeline_.size() > 1) pipeline_.all_reduce(dev, squares.mut()).wait();
    if (groups_ == 1) return squares;
    Tensor<Dev> whole(dev, DType::f64, {count});
    detail::tree_sum(dev, squares.mut().as({groups_, count}), adds_, whole.mut());
    return whole;
  }

 private:
  Comm<Dev> tensor_, pipeline_;
  int parameters_, groups_;
  std::vector<detail::TreeAdd> adds_;  // order in which the sums of groups are added
  Replicas<Dev>* replicas_;
};

/// A buffer of optimizer state, with its name in PyTorch: "exp_avg", "momentum_buffer", ...
template <class Dev>
struct StateBuffer {
  std::string name;
  Tensor<Dev>* buffer;
  bool narrow_only = false;  ///< only the elements of 16-bit values are in use
};

template <class Dev>
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// First half of a step. Runs all collectives of the update (over the tensor and pipeline axes, and Replicas::sum)
  /// but changes no weight, state() or gradient; per-layer rates are kept for apply(). gradients: the squared norms
  /// from Norms. state: the StepState with the step's decision. The default does nothing.
  virtual void prepare(Dev& /*dev*/, ConstView<Dev> /*gradients*/, ConstView<Dev> /*state*/) {}
  /// Second half of a step: updates weights and state() if the step is applied. Not collective. Uses the same gradients
  /// and StepState as the preceding prepare().
  virtual void apply(Dev& dev, ConstView<Dev> state) = 0;
  /// Returns the optimizer's name. Loading throws for a checkpoint of an optimizer with another name.
  [[nodiscard]] virtual std::string name() const = 0;
  /// Returns the settings that all ranks of a run must share, such as a momentum.
  [[nodiscard]] virtual std::string settings() const { return {}; }
  [[nodiscard]] virtual std::vector<StateBuffer<Dev>> state() = 0;
  /// Copies the values to the master weights. Must be called after values were set from outside.
  virtual void values_changed(Dev& dev) = 0;
};

/// Returns all state of this rank: weights, running statistics, optimizer state. own: see ParameterStore::pieces().
template <class Dev>
[[nodiscard]] std::vector<HeldPiece<Dev>> state_pieces(ParameterStore<Dev>& store,
                                                       Optimizer<Dev>& optimizer,
                                                       bool own = false) {
  auto pieces = store.pieces(own);
  for (const auto& buffer : optimizer.state())
    for (auto& piece : store.pieces(buffer.name, *buffer.buffer, buffer.narrow_only))
      pieces.push_back(std::move(piece));
  return pieces;
}

/// Base of dhp's optimizers, with named flat state buffers and master weights for 16-bit values.
template <class Dev>
class BufferedOptimizer : public Optimizer<Dev> {
 public:
  [[gnu::cold]] BufferedOptimizer(Dev& dev, ParameterStore<Dev>& store,
                                  const std::vector<const char*>& names)
      : store_(store) {
    if (store.trained().has_narrow()) {
      masters_ = store.make_buffer(dev);
      copy_to_masters(dev);
    }
    for (const auto* name : names) buffers_.emplace_back(name, store.make_buffer(dev));
  }
  std::vector<StateBuffer<Dev>> state() override {
    std::vector<StateBuffer<Dev>> state;
    if (masters_) state.push_back({"master", &masters_, true});
    for (auto& [name, buffer] : buffers_) state.push_back({name, &buffer});
    return state;
  }
  void values_changed(Dev& dev) override { copy_to_masters(dev); }

 protected:
  ParameterStore<Dev>& store_;

  /// Returns the buffer of the name with index `at`, or an empty view if there is none.
  [[nodiscard]] View<Dev> buffer(std::size_t at) {
    return at < buffers_.size() ? buffers_[at].second.mut() : View<Dev>();
  }
  /// Returns the masters, in the accumulation type, or an empty view if all values already have that type.
  [[nodiscard]] View<Dev> masters() { return masters_ ? masters_.mut() : View<Dev>(); }
  /// Returns the rates that prepare() computed for apply(), and clears them.
  [[nodiscard]] Tensor<Dev> take(Tensor<Dev>& rates) {
    check(static_cast<bool>(rates), "the optimizer ", this->name(),
          " has no rates for this step: call prepare() before each apply()");
    return std::exchange(rates, {});
  }

 private:
  void copy_to_masters(Dev& dev) {
    if (!masters_) return;
    for (const auto& part : store_.held())
      cast(dev, ConstView<Dev>(part.value), masters_.mut().slice(part.range));
  }

  Tensor<Dev> masters_;
  std::vector<std::pair<const char*, Tensor<Dev>>> buffers_;
};

}  // namespace dhp
