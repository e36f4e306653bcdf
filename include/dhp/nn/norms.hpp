// Norms: one service for clipping, LARS, LAMB and metrics. Each element of the model counts once: what is
// split over the tensor axis is summed over it, what is replicated or tied is counted by one rank.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/nn/parameter_store.hpp>
#include <dhp/ops/reduce.hpp>

namespace dhp {

template <class Dev>
class Norms {
 public:
  Norms(Comm<Dev> tensor, Comm<Dev> pipeline, int parameters_in_model)
      : tensor_(std::move(tensor)),
        pipeline_(std::move(pipeline)),
        parameters_(parameters_in_model) {}

  /// Squared norms of every parameter of the model, f64 [parameters] by ParameterState::index, the same on
  /// every rank, on the device. view_of(parameter) is the tensor to take the norm of: its gradient, its
  /// value, ...; buffers do not count. Collective over the tensor and the pipeline axis.
  template <class ViewOf>
  [[nodiscard]] Tensor<Dev> squares(Dev& dev, const ParameterStore<Dev>& store, ViewOf view_of) {
    auto sums = Tensor<Dev>::zeros(dev, DType::f64, {parameters_});
    for (const auto& parameter : store.parameters()) {
      if (parameter->spec.buffer || !counts_here(*parameter)) continue;
      sum_of_squares(dev, ConstView<Dev>(view_of(*parameter)),
                     sums.mut().slice(parameter->index, parameter->index + 1));
    }
    // Every entry is 0 on all ranks but those that hold a part of it.
    if (tensor_.size() > 1) tensor_.all_reduce(dev, sums.mut()).wait();
    if (pipeline_.size() > 1) pipeline_.all_reduce(dev, sums.mut()).wait();
    return sums;
  }

  [[nodiscard]] Tensor<Dev> gradient_squares(Dev& dev, const ParameterStore<Dev>& store) {
    return squares(dev, store,
                   [](const ParameterState<Dev>& parameter) { return parameter.gradient; });
  }

 private:
  [[nodiscard]] bool counts_here(const ParameterState<Dev>& parameter) const {
    return parameter.owned && (parameter.spec.is_split() || tensor_.rank() == 0);
  }

  Comm<Dev> tensor_;
  Comm<Dev> pipeline_;
  int parameters_;
};

}  // namespace dhp
