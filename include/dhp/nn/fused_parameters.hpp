// Fused parameters: several parameters of one shape form one matrix, so that one product replaces several, for example
// those of the query, key and value projections. Each parameter keeps its own name, initial values and norm. Products
// read the parameters in place if the store puts them side by side (segments_are_adjacent), otherwise from a copy.
#pragma once

#include <dhp/core/append.hpp>
#include <dhp/core/function_ref.hpp>
#include <dhp/nn/parameter.hpp>
#include <dhp/ops/elementwise.hpp>
#include <dhp/ops/segments.hpp>

#include <type_traits>
#include <vector>

namespace dhp::detail {

/// Returns whether each view begins where the previous view ends.
template <class AnyView>
[[nodiscard]] bool are_adjacent(const std::vector<AnyView>& views) {
  for (std::size_t at = 1; at < views.size(); ++at)
    if (views[at].bytes() != views[at - 1].bytes() + views[at - 1].size_bytes()) return false;
  return true;
}
[[nodiscard]] inline Shape fused_shape(const Shape& part, std::size_t parts) {
  return part.with(0, part[0] * static_cast<std::int64_t>(parts));
}
template <class AnyView>
[[nodiscard]] AnyView fused_view(const std::vector<AnyView>& views) {
  return {views[0].bytes(), views[0].dtype(), fused_shape(views[0].shape(), views.size())};
}

/// The values of `parts`, concatenated along dim 0: in place if possible, otherwise a copy.
template <class Dev>
class FusedValues {
 public:
  FusedValues(Dev& dev, const ParameterList<Dev>& parts) {
    std::vector<ConstView<Dev>> views;
    for (const auto& part : parts) views.push_back(part->value);
    view_ = fused_view(views);
    if (are_adjacent(views)) return;
    copy_ = Tensor<Dev>(dev, view_.dtype(), view_.shape());
    auto* to = copy_.mut().bytes();
    for (const auto& view : views) {
      dev.copy(to, view.bytes(), view.size_bytes());
      to += view.size_bytes();
    }
    view_ = copy_.view();
  }
  [[nodiscard]] ConstView<Dev> view() const { return view_; }

 private:
  Tensor<Dev> copy_;
  ConstView<Dev> view_;
};

/// Adds a contribution to the gradients of weights and of biases, each list concatenated along dim 0. write(dw, dbias,
/// beta) stores beta * old value + contribution in both.
template <class Dev>
void accumulate_fused(Dev& dev, const ParameterList<Dev>& weights, const ParameterList<Dev>& biases,
                      std::type_identity_t<FunctionRef<void(View<Dev>, View<Dev>, double)>> write) {
  auto all = weights;
  detail::append(all, biases);
  accumulate_all(dev, all, [&](const std::vector<View<Dev>>& views, double beta) {
    const auto split = views.begin() + static_cast<std::ptrdiff_t>(weights.size());
    const std::vector<View<Dev>> groups[] = {{views.begin(), split}, {split, views.end()}};
    bool in_place = true;
    // segments_are_adjacent does not depend on the sharding, so sharded and unsharded stores round alike.
    for (const auto& group : groups)
      in_place = in_place && are_adjacent(group) &&
                 segments_are_adjacent(group[0].count(), std::ssize(group));
    if (in_place) return write(fused_view(groups[0]), fused_view(groups[1]), beta);
    Tensor<Dev> fresh[2];
    for (int at = 0; at < 2; ++at)
      fresh[at] = Tensor<Dev>(dev, groups[at][0].dtype(), fused_view(groups[at]).shape());
    write(fresh[0].mut(), fresh[1].mut(), 0.0);
    for (int at = 0; at < 2; ++at) {
      const auto rows = groups[at][0].shape()[0];
      std::int64_t row = 0;
      for (const auto& view : groups[at]) {
        const auto part = fresh[at].mut().slice(row, row + rows);
        if (beta == 0) copy(dev, part, view);
        else add(dev, view, part, view);
        row += rows;
      }
    }
  });
}
}  // namespace dhp::detail
