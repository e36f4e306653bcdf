// Optimizer: turns the summed gradients of a store into a step of its values. State (momenta, master weights)
// lies in flat buffers with the store's numbering and has names, so that a checkpoint can be loaded under
// another layout. An optimizer of your own derives from Optimizer; make_optimizer(dev, store, norms, options)
// makes the one that a struct of options stands for.
//
// Norms: one service for clipping, LARS, LAMB and metrics. Each element of the model counts once: what is
// split over the tensor axis is summed over it, what is replicated or tied is counted by one rank.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/nn/parameter_store.hpp>
#include <dhp/ops/optimizer.hpp>

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace dhp {

template <class Dev>
class Norms {
 public:
  Norms(Comm<Dev> tensor, Comm<Dev> pipeline, int parameters_in_model)
      : tensor_(std::move(tensor)),
        pipeline_(std::move(pipeline)),
        parameters_(parameters_in_model) {}

  /// Squared norms of every parameter of the model, f64 [parameters] by ParameterState::index, the same on
  /// every rank, on the device; x has the store's numbering and accumulation type. Buffers do not count.
  /// Collective over the tensor and the pipeline axis.
  [[nodiscard]] Tensor<Dev> squares(Dev& dev, const ParameterStore<Dev>& store, ConstView<Dev> x) {
    return everywhere(dev, [&](View<Dev> sums) { segment_squares(dev, counted(store), x, sums); });
  }
  [[nodiscard]] Tensor<Dev> gradient_squares(Dev& dev, const ParameterStore<Dev>& store) {
    return squares(dev, store, store.gradients());
  }
  /// The same of the weights: masters where values have 16 bits, else the values.
  [[nodiscard]] Tensor<Dev> weight_squares(Dev& dev, const ParameterStore<Dev>& store,
                                           ConstView<Dev> masters) {
    return everywhere(
        dev, [&](View<Dev> sums) { dhp::weight_squares(dev, counted(store), masters, sums); });
  }

 private:
  [[nodiscard]] const SegmentTable<Dev>& counted(const ParameterStore<Dev>& store) const {
    return store.counted(tensor_.rank() == 0);
  }
  /// What add(sums) of each rank comes to.
  template <class Add>
  [[nodiscard]] Tensor<Dev> everywhere(Dev& dev, Add add) {
    auto sums = Tensor<Dev>::zeros(dev, DType::f64, {parameters_});
    add(sums.mut());
    // Every entry is 0 on all ranks but those that hold a part of it.
    if (tensor_.size() > 1) tensor_.all_reduce(dev, sums.mut()).wait();
    if (pipeline_.size() > 1) pipeline_.all_reduce(dev, sums.mut()).wait();
    return sums;
  }

  Comm<Dev> tensor_;
  Comm<Dev> pipeline_;
  int parameters_;
};

/// A named flat buffer of optimizer state; "exp_avg", "momentum_buffer", ... as in PyTorch.
template <class Dev>
struct StateBuffer {
  std::string name;
  Tensor<Dev>* buffer;
  bool narrow_only = false;  ///< means something for values of 16 bits alone
};

template <class Dev>
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// One step, if the decision of the state is to apply it. gradients: their squared norms, as Norms has
  /// them. Collective over the tensor and pipeline axes for the optimizers that need norms of weights.
  virtual void step(Dev& dev, ConstView<Dev> gradients, ConstView<Dev> state) = 0;
  /// Its kind: a checkpoint of another kind is refused.
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::vector<StateBuffer<Dev>> state() = 0;
  /// The weights were set from outside: master weights are made from them anew.
  virtual void values_changed(Dev& dev) = 0;
};

/// Master weights of a store, in the accumulation type, where values have 16 bits.
template <class Dev>
class MasterWeights {
 public:
  MasterWeights(Dev& dev, ParameterStore<Dev>& store) : store_(&store) {
    if (!store.trained().has_narrow()) return;
    buffer_ = store.make_buffer(dev);
    refresh(dev);
  }

  /// In the store's numbering; empty where all values have the accumulation type, and are the masters.
  [[nodiscard]] View<Dev> view() { return buffer_ ? buffer_.mut() : View<Dev>(); }
  /// After values were set from outside (a checkpoint without masters).
  void refresh(Dev& dev) {
    if (!buffer_) return;
    for (const auto& parameter : store_->parameters())
      if (!parameter->spec.buffer)
        cast(dev, ConstView<Dev>(parameter->value), ParameterStore<Dev>::of(buffer_, *parameter));
  }
  void add_state(std::vector<StateBuffer<Dev>>& state) {
    if (buffer_) state.push_back({"master", &buffer_, true});
  }

 private:
  ParameterStore<Dev>* store_;
  Tensor<Dev> buffer_;
};

/// The optimizer that a choice of options stands for.
template <class Dev, class... Options>
[[nodiscard]] std::unique_ptr<Optimizer<Dev>> make_optimizer(
    Dev& dev, ParameterStore<Dev>& store, const Norms<Dev>& norms,
    const std::variant<Options...>& choice) {
  return std::visit(
      [&](const auto& options) -> std::unique_ptr<Optimizer<Dev>> {
        return make_optimizer(dev, store, norms, options);
      },
      choice);
}

}  // namespace dhp
