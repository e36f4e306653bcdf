#pragma once

#include <dhp/cuda/block.hpp>
#include <dhp/ops/tree_sum.hpp>

#include <algorithm>
#include <array>

namespace dhp::detail::cuda {

/// Adds rows along a tree; a thread works on one column.
template <class A, class Y>
struct SumTree {
  std::array<TreeAdd, max_tree_leaves> adds;
  int count;
  std::int64_t columns, wanted;  // number of columns of `rows`, and of y
  A beta;
  A* rows;
  Y* y;

  constexpr void operator()(auto& block) const {
    for (auto at = grid_thread(block); at < columns; at += grid_threads(block)) {
      for (int each = 0; each < count; ++each)
        rows[adds[each].onto * columns + at] += rows[adds[each].from * columns + at];
      if (at >= wanted) continue;
      const A old = beta == A(0) ? A(0) : beta * static_cast<A>(y[at]);
      y[at] = static_cast<Y>(old + rows[at]);
    }
  }
};

}  // namespace dhp::detail::cuda

namespace dhp::detail {

template <KernelDevice Dev>
void tree_sum_on(Dev& dev, View<Dev> parts, const std::vector<TreeAdd>& adds, View<Dev> y,
                 double beta) {
  visit_accumulator(parts.dtype(), [&]<class A>(TypeTag<A>) {
    std::array<TreeAdd, max_tree_leaves> list{};
    std::copy(adds.begin(), adds.end(), list.begin());
    const auto run = [&]<class Y>(TypeTag<Y>) {
      launch(dev, cuda::grid_for(dev, parts.columns()),
             cuda::SumTree<A, Y>{list, static_cast<int>(adds.size()), parts.columns(), y.count(),
                                 static_cast<A>(beta), parts.data(),
                                 y.empty() ? nullptr : y.template data<Y>()});
    };
    if (y.empty()) run(TypeTag<A>());
    else visit_floating(y.dtype(), run);
  });
}

}  // namespace dhp::detail
