// Rotary positions on the GPU. A thread rotates one pair of columns of a row, in all heads.
#pragma once

#include <dhp/cuda/block.hpp>
#include <dhp/ops/rotary.hpp>

namespace dhp::detail::cuda {

template <class T>
struct Rotary {
  std::int64_t rows, stride, half;
  int heads;
  bool inverse;
  double log_base;
  const std::int32_t* positions;
  T* x;

  constexpr void operator()(auto& block) const {
    using A = Accumulator<T>;
    for (auto at = grid_thread(block); at < rows * half; at += grid_threads(block)) {
      const auto row = at / half, c = at - row * half;
      const auto rotation = Rotation::of_turns(positions[row] * Rotation::turns(log_base, c, half));
      const A cosine = static_cast<A>(rotation.cosine);
      const A sine = static_cast<A>(inverse ? -rotation.sine : rotation.sine);
      for (int head = 0; head < heads; ++head) {
        T* const one = x + row * stride + head * 2 * half + c;
        T* const other = one + half;
        const A a = static_cast<A>(*one), b = static_cast<A>(*other);
        *one = static_cast<T>(a * cosine - b * sine);
        *other = static_cast<T>(b * cosine + a * sine);
      }
    }
  }
};

}  // namespace dhp::detail::cuda

namespace dhp::detail {

template <KernelDevice Dev>
void rotary_on(Dev& dev, View<Dev> x, ConstView<Dev> positions, const RotaryOptions& options) {
  const auto half = x.columns() / options.heads / 2;
  visit_floating(x.dtype(), [&]<class T>(TypeTag<T>) {
    launch(dev, cuda::grid_for(dev, x.rows() * half),
           cuda::Rotary<T>{x.rows(), options.row_stride == 0 ? x.columns() : options.row_stride,
                           half, options.heads, options.inverse, std::log(options.base),
                           positions.data(), x.data()});
  });
}

}  // namespace dhp::detail
