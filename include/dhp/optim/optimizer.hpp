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

/// Neighbouring parameters that are treated alike: one call updates them all.
template <class Dev>
struct Run {
  Range range;
  View<Dev> value;
  bool decays = true;
};

/// The trained parameters of a store as the longest runs, with fp32 masters where values have 16 bits.
template <class Dev>
class UpdatePlan {
 public:
  UpdatePlan(Dev& dev, ParameterStore<Dev>& store) : store_(&store) {
    for (const auto& parameter : store.parameters()) {
      if (parameter->spec.buffer) {
        runs_.push_back({});  // a gap
        continue;
      }
      has_masters_ |= parameter->value.dtype() != store.accumulation();
      if (!extend(*parameter)) runs_.push_back(run_of(*parameter));
    }
    std::erase_if(runs_, [](const Run<Dev>& run) { return run.value.empty(); });
    if (!has_masters_) return;
    masters_ = store.make_buffer(dev);
    refresh_masters(dev);
  }

  [[nodiscard]] ParameterStore<Dev>& store() { return *store_; }
  [[nodiscard]] const std::vector<Run<Dev>>& runs() const { return runs_; }
  /// The accumulation-type weights of a run: masters, or the values themselves.
  [[nodiscard]] View<Dev> master(const Run<Dev>& run) { return master(run.range, run.value); }
  [[nodiscard]] View<Dev> master(const ParameterState<Dev>& parameter) {
    return master(parameter.range, parameter.value.as({parameter.range.size()}));
  }
  /// Of rates by ParameterState::index, f64, the one of a parameter; biases and norms take the learning rate.
  [[nodiscard]] static ConstView<Dev> rate(const ParameterState<Dev>& parameter,
                                           ConstView<Dev> state, ConstView<Dev> rates) {
    if (!parameter.spec.decays) return learning_rate_of(state);
    return rates.slice(parameter.index, parameter.index + 1);
  }
  /// After values were set from outside (a checkpoint without masters).
  void refresh_masters(Dev& dev) {
    if (!has_masters_) return;
    for (const auto& run : runs_)
      cast(dev, ConstView<Dev>(run.value), ParameterStore<Dev>::part(masters_, run.range));
  }
  void add_state(std::vector<StateBuffer<Dev>>& state) {
    if (has_masters_) state.push_back({"master", &masters_});
  }

 private:
  [[nodiscard]] static Run<Dev> run_of(const ParameterState<Dev>& parameter) {
    return {parameter.range, parameter.value.as({parameter.range.size()}), parameter.spec.decays};
  }
  bool extend(const ParameterState<Dev>& parameter) {
    if (runs_.empty() || runs_.back().value.empty()) return false;
    auto& run = runs_.back();
    const auto count = parameter.range.last - run.range.first;
    const auto bytes =
        static_cast<std::size_t>(count - parameter.range.size()) * size_of(run.value.dtype());
    // Padding between neighbours is zero and stays so: an update of zeros.
    if (run.decays != parameter.spec.decays || run.value.dtype() != parameter.value.dtype() ||
        run.value.bytes() + bytes != parameter.value.bytes())
      return false;
    run.range.last = parameter.range.last;
    run.value = {run.value.bytes(), run.value.dtype(), {count}};
    return true;
  }
  [[nodiscard]] View<Dev> master(Range range, View<Dev> value) {
    return value.dtype() == store_->accumulation() ? value
                                                   : ParameterStore<Dev>::part(masters_, range);
  }

  ParameterStore<Dev>* store_;
  std::vector<Run<Dev>> runs_;
  bool has_masters_ = false;
  Tensor<Dev> masters_;
};

}  // namespace dhp
