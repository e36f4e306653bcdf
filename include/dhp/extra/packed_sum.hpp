// PackedSum: sums several small gradients over the replicas in one all-reduce. Reducers use it for gradients that they
// do not compress, and for running statistics of batch norms, which they do not delay.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/nn/parameter_store.hpp>

#include <utility>
#include <vector>

namespace dhp::detail {
template <class Dev>
class PackedSum {
 public:
  PackedSum(Dev& dev, std::vector<View<Dev>> gradients, DType type)
      : gradients_(std::move(gradients)) {
    std::int64_t elements = 0;
    for (const auto& gradient : gradients_) elements += gradient.count();
    packed_ = Tensor<Dev>::persistent(dev, type, {elements});
  }
  [[nodiscard]] static PackedSum of_running_statistics(Dev& dev, ParameterStore<Dev>& store) {
    std::vector<View<Dev>> gradients;
    for (const auto& parameter : store.parameters())
      if (parameter->spec.buffer) gradients.push_back(store.gradients(parameter->range));
    return {dev, std::move(gradients), store.accumulation()};
  }

  /// Sums the replicas' gradients into the packed buffer. Collective over the group.
  void sum(Dev& dev, Comm<Dev>& group) {
    if (gradients_.empty()) return;
    for_each([&](View<Dev> gradient, View<Dev> packed) { copy(dev, gradient, packed); });
    if (group.size() > 1) group.all_reduce(dev, packed_.mut()).wait();
  }
  /// Writes the sums to the gradients.
  void put(Dev& dev) {
    for_each([&](View<Dev> gradient, View<Dev> packed) { copy(dev, packed, gradient); });
  }

 private:
  void for_each(auto body) {
    std::int64_t first = 0;
    for (const auto& gradient : gradients_) {
      body(gradient, packed_.mut().slice(first, first + gradient.count()));
      first += gradient.count();
    }
  }

  std::vector<View<Dev>> gradients_;
  Tensor<Dev> packed_;
};
}  // namespace dhp::detail
