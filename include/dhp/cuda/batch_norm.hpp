#pragma once

#include <dhp/cuda/batch_norm_kernels.hpp>
#include <dhp/ops/batch_norm.hpp>

namespace dhp::cuda {

template <class A, class Dev>
[[nodiscard]] NormVectors<A> pointers(const BatchNormVectors<Dev>& vectors) {
  return {vectors.mean.template data<A>(), vectors.inv_std.template data<A>(),
          vectors.gamma.template data<A>(), vectors.beta.template data<A>()};
}

/// dresidual and y are for the gate `result`; otherwise both are empty.
template <NormGate gate, class T, class Dev>
void batch_norm_gradient_sums(Dev& dev, ConstView<Dev> dy, ConstView<Dev> x,
                              const BatchNormVectors<Dev>& vectors, const T* y, T* dresidual,
                              View<Dev> sum_dy, View<Dev> sum_dy_xhat) {
  using A = Accumulator<T>;
  const BatchNormGradientTerms<T, gate> terms{
      dy.template data<T>(), x.template data<T>(), x.columns(), pointers<A>(vectors), y, dresidual};
  const FinishGradientSums<A> finish{terms.vectors.inv_std, sum_dy.template data<A>(),
                                     sum_dy_xhat.template data<A>()};
  const auto reduce = [&](auto width) {
    reduce_columns(dev, x.rows(), x.columns(), width, terms, finish);
  };
  const auto& v = terms.vectors;
  with_width<T>(x.columns(), reduce, terms.dy, terms.x, v.mean, v.inv_std, v.gamma, v.beta, y,
                dresidual);
}

}  // namespace dhp::cuda

namespace dhp {

template <KernelDevice Dev>
void batch_norm_sums_on(Dev& dev, ConstView<Dev> x, View<Dev> sum) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    const cuda::ColumnTerms<T> terms{x.template data<T>(), x.columns()};
    const cuda::StoreColumn<Accumulator<T>> finish{sum.template data<Accumulator<T>>()};
    const auto reduce = [&](auto width) {
      cuda::reduce_columns(dev, x.rows(), x.columns(), width, terms, finish);
    };
    cuda::with_width<T>(x.columns(), reduce, terms.x);
  });
}
template <KernelDevice Dev>
void batch_norm_squared_deviations_on(Dev& dev, ConstView<Dev> x, ConstView<Dev> mean,
                                      View<Dev> sum) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    const cuda::ColumnTerms<T, true> terms{x.template data<T>(), x.columns(),
                                           mean.template data<A>()};
    const cuda::StoreColumn<A> finish{sum.template data<A>()};
    const auto reduce = [&](auto width) {
      cuda::reduce_columns(dev, x.rows(), x.columns(), width, terms, finish);
    };
    cuda::with_width<T>(x.columns(), reduce, terms.x, terms.middle);
  });
}
template <KernelDevice Dev>
void batch_norm_apply_on(Dev& dev, ConstView<Dev> x, const BatchNormVectors<Dev>& vectors,
                         ConstView<Dev> residual, bool relu, View<Dev> y) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    const auto v = cuda::pointers<Accumulator<T>>(vectors);
    const auto apply = [&]<bool adds>(std::bool_constant<adds>) {
      const cuda::BatchNormApply<T, adds> f{
          x.columns(), x.template data<T>(), v, adds ? residual.template data<T>() : nullptr,
          relu,        y.template data<T>()};
      const auto map = [&](auto width) { cuda::map_columns(dev, x.rows(), x.columns(), width, f); };
      cuda::with_width<T>(x.columns(), map, f.x, v.mean, v.inv_std, v.gamma, v.beta, f.residual,
                          f.y);
    };
    if (residual.empty()) apply(std::false_type());
    else apply(std::true_type());
  });
}
template <KernelDevice Dev>
void batch_norm_backward_sums_on(Dev& dev, ConstView<Dev> dy, ConstView<Dev> x,
                                 const BatchNormVectors<Dev>& vectors, bool relu, View<Dev> sum_dy,
                                 View<Dev> sum_dy_xhat) {
  using cuda::NormGate;
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    const auto sums = [&]<NormGate gate>(std::integral_constant<NormGate, gate>) {
      cuda::batch_norm_gradient_sums<gate, T>(dev, dy, x, vectors, nullptr, nullptr, sum_dy,
                                              sum_dy_xhat);
    };
    if (relu) sums(std::integral_constant<NormGate, NormGate::value>());
    else sums(std::integral_constant<NormGate, NormGate::none>());
  });
}
template <KernelDevice Dev>
void batch_norm_residual_backward_sums_on(Dev& dev, ConstView<Dev> dy, ConstView<Dev> y,
                                          ConstView<Dev> x, const BatchNormVectors<Dev>& vectors,
                                          View<Dev> dresidual, View<Dev> sum_dy,
                                          View<Dev> sum_dy_xhat) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    cuda::batch_norm_gradient_sums<cuda::NormGate::result, T>(
        dev, dy, x, vectors, y.template data<T>(), dresidual.template data<T>(), sum_dy,
        sum_dy_xhat);
  });
}
template <KernelDevice Dev>
void batch_norm_backward_apply_on(Dev& dev, ConstView<Dev> dy, ConstView<Dev> x,
                                  const BatchNormVectors<Dev>& vectors, bool relu,
                                  ConstView<Dev> sum_dy, ConstView<Dev> sum_dy_xhat, double count,
                                  View<Dev> dx) {
  using cuda::NormGate;
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    const auto v = cuda::pointers<A>(vectors);
    const auto apply = [&]<NormGate gate>(std::integral_constant<NormGate, gate>) {
      const cuda::BatchNormBackwardApply<T, gate> f{x.columns(),
                                                    dy.template data<T>(),
                                                    x.template data<T>(),
                                                    v,
                                                    sum_dy.template data<A>(),
                                                    sum_dy_xhat.template data<A>(),
                                                    static_cast<A>(1.0 / count),
                                                    dx.template data<T>()};
      const auto map = [&](auto width) { cuda::map_columns(dev, x.rows(), x.columns(), width, f); };
      cuda::with_width<T>(x.columns(), map, f.dy, f.x, v.mean, v.inv_std, v.gamma, v.beta, f.sum_dy,
                          f.sum_dy_xhat, f.dx);
    };
    if (relu) apply(std::integral_constant<NormGate, NormGate::value>());
    else apply(std::integral_constant<NormGate, NormGate::none>());
  });
}

/// dhp's kernels are unfused; cudnn_batch_norm.hpp has the fused ones.
template <KernelDevice Dev>
std::optional<BatchNormResult<Dev>> batch_norm_fused_on(Dev&, ConstView<Dev>, ConstView<Dev>,
                                                        ConstView<Dev>, ConstView<Dev>, double,
                                                        bool) {
  return {};
}
template <KernelDevice Dev>
std::optional<BatchNormGradients<Dev>> batch_norm_fused_backward_on(Dev&, ConstView<Dev>,
                                                                    ConstView<Dev>,
                                                                    const BatchNormVectors<Dev>&,
                                                                    ConstView<Dev>, bool) {
  return {};
}

}  // namespace dhp
