// Norms: one service for clipping, LARS, LAMB and metrics. Each element of the model counts once: what is
// split over the tensor axis is summed over it, what is replicated or tied is counted by one rank.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/nn/parameter_store.hpp>
#include <dhp/ops/reduce.hpp>

#include <cmath>
#include <vector>

namespace dhp {

/// Squared norms of every parameter of the model, by ParameterState::index, the same on every rank.
struct SquaredNorms {
  std::vector<double> of;
  /// Summed in the order of the parameters, so the same bits however the model is cut into stages.
  [[nodiscard]] double total() const {
    double sum = 0;
    for (const double square : of) sum += square;
    return sum;
  }
};

template <class Dev>
class Norms {
 public:
  Norms(Comm<Dev> tensor, Comm<Dev> pipeline, int parameters_in_model)
      : tensor_(std::move(tensor)),
        pipeline_(std::move(pipeline)),
        parameters_(parameters_in_model) {}

  /// view_of(parameter) is the tensor to take the norm of: its gradient, its value, ...; buffers do not
  /// count. Collective over the tensor and the pipeline axis.
  template <class ViewOf>
  [[nodiscard]] SquaredNorms squares(Dev& dev, const ParameterStore<Dev>& store, ViewOf view_of) {
    auto sums = Tensor<Dev>::zeros(dev, DType::f64, {parameters_});
    for (const auto& parameter : store.parameters()) {
      if (parameter->spec.buffer || !counts_here(*parameter)) continue;
      sum_of_squares(dev, ConstView<Dev>(view_of(*parameter)),
                     sums.mut().slice(parameter->index, parameter->index + 1));
    }
    // Every entry is 0 on all ranks but those that hold a part of it.
    if (tensor_.size() > 1) tensor_.all_reduce(dev, sums.mut()).wait();
    if (pipeline_.size() > 1) pipeline_.all_reduce(dev, sums.mut()).wait();
    return {sums.template to_host<double>(dev)};
  }

  [[nodiscard]] SquaredNorms gradient_squares(Dev& dev, const ParameterStore<Dev>& store) {
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
