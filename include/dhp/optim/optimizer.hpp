// Optimizer: turns the summed gradients of a store into a step of its values. State (momenta, masters of
// 16-bit weights) lies in flat buffers with the store's numbering and has names, so that a checkpoint can
// be loaded under another layout.
#pragma once

#include <dhp/nn/norms.hpp>
#include <dhp/ops/optimizer.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

/// A named flat buffer of optimizer state; "exp_avg", "momentum_buffer", ... as in PyTorch.
template <class Dev>
struct StateBuffer {
  std::string name;
  Tensor<Dev>* buffer;
};

template <class Dev>
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// One step, if the state says that it goes (ops/step.hpp). gradients: their squared norms, as Norms has
  /// them. Collective over the tensor and pipeline axes for the optimizers that need norms of weights.
  virtual void step(Dev& dev, ConstView<Dev> gradients, ConstView<Dev> state) = 0;
  [[nodiscard]] virtual std::vector<StateBuffer<Dev>> state() = 0;
  /// The weights were set from outside: masters of 16-bit weights are made from them anew.
  virtual void values_changed(Dev& dev) = 0;
};

/// Masters of a store's weights, in the accumulation type, where values have 16 bits.
template <class Dev>
class Masters {
 public:
  Masters(Dev& dev, ParameterStore<Dev>& store) : store_(&store) {
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
    if (buffer_) state.push_back({"master", &buffer_});
  }

 private:
  ParameterStore<Dev>* store_;
  Tensor<Dev> buffer_;
};

}  // namespace dhp
