// RunningStatistics sums batch norm's statistics of a step over the replicas, in one small all-reduce. Reducers that
// delay or compress gradients use it, so that running statistics stay current and equal on all replicas.
#pragma once

#include <dhp/comm/comm.hpp>
#include <dhp/nn/parameter_store.hpp>

#include <vector>

namespace dhp::detail {
template <class Dev>
class RunningStatistics {
 public:
  /// Keeps a pointer.
  RunningStatistics(Dev& dev, ParameterStore<Dev>& store) : store_(&store) {
    std::int64_t elements = 0;
    for (const auto& parameter : store.parameters()) {
      if (!parameter->spec.buffer) continue;
      ranges_.push_back(parameter->range);
      elements += parameter->range.size();
    }
    packed_ = Tensor<Dev>::persistent(dev, store.accumulation(), {elements});
  }

  /// Takes this replica's sums from the store's gradients. Collective over the group.
  void sum(Dev& dev, Comm<Dev>& group) {
    if (ranges_.empty()) return;
    copy([&](View<Dev> packed, View<Dev> own) {
      dev.copy(packed.bytes(), own.bytes(), own.size_bytes());
    });
    if (group.size() > 1) group.all_reduce(dev, packed_.mut()).wait();
  }
  /// Writes the sums over the replicas to the store's gradients.
  void put(Dev& dev) {
    copy([&](View<Dev> packed, View<Dev> own) {
      dev.copy(own.bytes(), packed.bytes(), own.size_bytes());
    });
  }

 private:
  template <class Copy>
  void copy(Copy one) {
    std::int64_t first = 0;
    for (const auto& range : ranges_) {
      one(packed_.mut().slice(first, first + range.size()), store_->gradients(range));
      first += range.size();
    }
  }

  ParameterStore<Dev>* store_;
  std::vector<Range> ranges_;
  Tensor<Dev> packed_;
};
}  // namespace dhp::detail
