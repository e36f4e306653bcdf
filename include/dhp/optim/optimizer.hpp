// Optimizer: updates a store's values from its summed gradients. Its state (momenta, master weights) lies in named
// flat buffers with the store's numbering, so a checkpoint loads under another layout. Norms serves clipping, LARS,
// LAMB and metrics. Each element of the model counts once: split weights are summed over the tensor axis, and one
// rank counts replicated and tied ones.
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
  /// replicas: of DataParallel.
  Norms(Comm<Dev> tensor, Comm<Dev> pipeline, detail::ParameterCount in_model,
        Replicas<Dev>* replicas = nullptr)
      : tensor_(std::move(tensor)),
        pipeline_(std::move(pipeline)),
        parameters_(in_model.parameters),
        groups_(in_model.groups),
        adds_(detail::TreeSum(groups_, {0, groups_}).adds()),
        replicas_(replicas) {}
  [[nodiscard]] const Replicas<Dev>* replicas() const { return replicas_; }

  /// The squared norm of each parameter of the model, f64 [parameters] by ParameterState::index, the same on
  /// every rank. x has the store's numbering and accumulation type; buffers do not count. Collective over
  /// the tensor and the pipeline axis.
  [[nodiscard]] Tensor<Dev> squares(Dev& dev, ParameterStore<Dev>& store, ConstView<Dev> x) {
    return squares(dev, store, 1, [&](const detail::SegmentTable<Dev>& counted, View<Dev> sums) {
      detail::tile_squares(dev, counted, x, sums);
    });
  }
  [[nodiscard]] Tensor<Dev> gradient_squares(Dev& dev, ParameterStore<Dev>& store) {
    return squares(dev, store, store.gradients());
  }
  /// The squared norms of the weights: of the masters if values have 16 bits.
  [[nodiscard]] Tensor<Dev> weight_squares(Dev& dev, ParameterStore<Dev>& store,
                                           ConstView<Dev> masters) {
    return squares(dev, store, 1, [&](const detail::SegmentTable<Dev>& counted, View<Dev> sums) {
      detail::tile_weight_squares(dev, counted, masters, sums);
    });
  }
  /// The same of `lists` quantities by the same collectives, f64 [lists * parameters], one list behind the other.
  /// add(counted, sums) writes the sums of this rank's tiles, f64 [lists * counted.sum_count()], zero until then.
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
    // With groups, each entry is nonzero on one rank only, so these sums are exact.
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
  std::vector<detail::TreeAdd> adds_;  // how the groups' sums are added
  Replicas<Dev>* replicas_;
};

/// A buffer of optimizer state, with PyTorch's name: "exp_avg", "momentum_buffer", ...
template <class Dev>
struct StateBuffer {
  std::string name;
  Tensor<Dev>* buffer;
  bool narrow_only = false;  ///< only for 16-bit values
};

template <class Dev>
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// First half of a step, with all its collectives (over the tensor and pipeline axes, and over replicas with ZeRO).
  /// It changes no weight, state() or gradient; per-layer rates are kept for apply(). gradients: their squared norms,
  /// from Norms; state: the StepState with the step's decision. Does nothing by default.
  virtual void prepare(Dev& /*dev*/, ConstView<Dev> /*gradients*/, ConstView<Dev> /*state*/) {}
  /// Second half: updates weights and state() if the step is applied. Not collective. Takes the gradients and
  /// StepState of the preceding prepare().
  virtual void apply(Dev& dev, ConstView<Dev> state) = 0;
  /// The optimizer's name; a checkpoint of another optimizer is refused.
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::vector<StateBuffer<Dev>> state() = 0;
  /// Copies the values to the master weights, after values were set from outside.
  virtual void values_changed(Dev& dev) = 0;
};

/// All state that this rank holds: weights, running statistics, optimizer state. own: as in ParameterStore::pieces().
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

/// Base of dhp's optimizers: named flat state buffers, and master weights for 16-bit values.
template <class Dev>
class BufferedOptimizer : public Optimizer<Dev> {
 public:
  BufferedOptimizer(Dev& dev, ParameterStore<Dev>& store, const std::vector<const char*>& names)
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

  /// Buffer of name number `at`; empty if there is none.
  [[nodiscard]] View<Dev> buffer(std::size_t at) {
    return at < buffers_.size() ? buffers_[at].second.mut() : View<Dev>();
  }
  /// In the accumulation type; empty if all values have that type.
  [[nodiscard]] View<Dev> masters() { return masters_ ? masters_.mut() : View<Dev>(); }
  /// The rates that prepare() left for apply(); used once.
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
