// Norms: one service for clipping, LARS, LAMB and metrics. Each element of the model counts once: what is
// split over the tensor axis is summed over it, what is replicated or tied is counted by one rank.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/nn/parameter_store.hpp>

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

}  // namespace dhp
