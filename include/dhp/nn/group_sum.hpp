// GroupSum: what layers exchange on H, the tensor axis (Shoeybi et al. 2019, "Megatron-LM", section 3). A
// column-parallel layer sums the gradient of x in its backward pass, a row-parallel one y in its forward pass.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/tensor/tensor.hpp>

#include <utility>

namespace dhp {

/// Sums over a group of ranks; in a group of one, as by default, it does nothing.
template <class Dev>
class GroupSum {
 public:
  GroupSum() = default;
  explicit GroupSum(Comm<Dev> group) : group_(std::move(group)) {}

  /// Replaces each rank's summand by their sum. The first layer of a model may have no input gradient to sum.
  void operator()(Dev& dev, Tensor<Dev>& summand) {
    if (group_.size() > 1 && summand) group_.all_reduce(dev, summand.mut()).wait();
  }
  /// What a layer adds its summand onto: on the first rank alone, so that the sum includes it once.
  [[nodiscard]] Tensor<Dev> once(Tensor<Dev> onto) const {
    return group_.rank() == 0 ? std::move(onto) : Tensor<Dev>();
  }

 private:
  Comm<Dev> group_;
};

}  // namespace dhp
