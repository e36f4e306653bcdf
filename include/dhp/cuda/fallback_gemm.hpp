// dhp's gemm kernel, for products that cuBLASLt does not support, for the tests' emulated GPU, and as their reference.
#pragma once

#include <dhp/cuda/tile_product.hpp>
#include <dhp/ops/gemm.hpp>

namespace dhp::detail::cuda {

/// Reads a stored matrix, or its transpose.
template <class T>
struct MatrixElement {
  const T* from;
  std::int64_t stride;  ///< leading dimension
  bool transposed;
  constexpr Accumulator<T> operator()(std::int64_t row, std::int64_t column) const {
    return static_cast<Accumulator<T>>(transposed ? from[column * stride + row]
                                                  : from[row * stride + column]);
  }
};

/// Stores c = alpha sum + beta c + bias, in C's type.
template <class A, class C, class Bias>
struct StoreProduct {
  A alpha, beta;
  C* c;
  std::int64_t stride;
  const Bias* bias;  ///< may be null
  constexpr void operator()(std::int64_t, std::int64_t row, std::int64_t column, A sum) const {
    C& to = c[row * stride + column];
    A value = alpha * sum;
    if (beta != 0) value += beta * static_cast<A>(to);
    if (bias != nullptr) value += static_cast<A>(bias[column]);
    to = static_cast<C>(value);
  }
};

}  // namespace dhp::detail::cuda

namespace dhp::detail {

template <KernelDevice Dev>
void gemm_on(Dev& dev, ConstView<Dev> a, ConstView<Dev> b, View<Dev> c, const GemmOptions& options,
             ConstView<Dev> bias) {
  visit_floating(a.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const cuda::MatrixElement<T> left{a.data(), a.shape()[1], options.transpose_a};
    const cuda::MatrixElement<T> right{b.data(), b.shape()[1], options.transpose_b};
    const auto size = gemm_size<Dev>(b, c, options);
    const auto store = [&]<class C, class Bias>(C* to, const Bias* add) {
      cuda::tile_product<A>(
          dev, size.m, size.n, size.k, left, right,
          cuda::StoreProduct<A, C, Bias>{static_cast<A>(options.alpha),
                                         static_cast<A>(options.beta), to, c.shape()[1], add});
    };
    const auto with_bias = [&]<class C>(C* to) {
      if (bias.empty()) store(to, static_cast<const T*>(nullptr));
      else if (bias.dtype() == dtype_of<T>()) store(to, bias.template data<T>());
      else if constexpr (is_16_bit<T>) store(to, bias.template data<A>());
    };
    if (c.dtype() == dtype_of<T>()) with_bias(c.template data<T>());
    else if constexpr (is_16_bit<T>) with_bias(c.template data<A>());
  });
}

}  // namespace dhp::detail
