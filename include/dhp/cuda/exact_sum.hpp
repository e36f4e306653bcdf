#pragma once

#include <dhp/cuda/block.hpp>
#include <dhp/ops/exact_sum.hpp>

#include <limits>

namespace dhp::detail::cuda {

template <class T>
struct ExactAccumulate {
  std::int64_t count;
  const T* x;
  std::int64_t *high, *low;
  std::int32_t* flag;

  constexpr void operator()(auto& block) const {
    for (auto at = grid_thread(block); at < count; at += grid_threads(block)) {
      const double value = static_cast<double>(x[at]);
      if (magnitude_bits(value) < exact_limit) accumulate_limbs(value, high[at], low[at]);
      else *flag = 1;  // all threads store the same value
    }
  }
};

template <class T>
struct ExactFinalize {
  std::int64_t count;
  const std::int64_t *high, *low;
  const std::int32_t* flag;
  T* x;

  constexpr void operator()(auto& block) const {
    const bool wrong = *flag != 0;
    for (auto at = grid_thread(block); at < count; at += grid_threads(block)) {
      const auto h = high[at];
      const auto l = low[at];
      if (wrong) x[at] = std::numeric_limits<T>::quiet_NaN();
      else if (is_small_limb(h) && is_small_limb(l)) x[at] = finalize_small<T>(h, l);
      else x[at] = finalize_large<T>(h, l);
    }
  }
};

}  // namespace dhp::detail::cuda

namespace dhp::detail {

template <KernelDevice Dev>
void exact_accumulate_on(Dev& dev, ConstView<Dev> x, View<Dev> high, View<Dev> low,
                         View<Dev> flag) {
  if (x.count() == 0) return;
  visit_accumulator(x.dtype(), [&]<class T>(Tag<T>) {
    launch(dev, cuda::grid_for(dev, x.count()),
           cuda::ExactAccumulate<T>{x.count(), x.data(), high.data(), low.data(), flag.data()});
  });
}
template <KernelDevice Dev>
void exact_finalize_on(Dev& dev, ConstView<Dev> high, ConstView<Dev> low, ConstView<Dev> flag,
                       View<Dev> x) {
  if (x.count() == 0) return;
  visit_accumulator(x.dtype(), [&]<class T>(Tag<T>) {
    launch(dev, cuda::grid_for(dev, x.count()),
           cuda::ExactFinalize<T>{x.count(), high.data(), low.data(), flag.data(), x.data()});
  });
}

}  // namespace dhp::detail
