// Batch normalisation on the GPU.
#pragma once

#include <dhp/cuda/batch_norm_kernels.hpp>
#include <dhp/ops/batch_norm.hpp>

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
void batch_norm_apply_on(Dev& dev, ConstView<Dev> x, ConstView<Dev> mean, ConstView<Dev> inv_std,
                         ConstView<Dev> gamma, ConstView<Dev> beta, bool relu, View<Dev> y) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    const cuda::BatchNormApply<T> f{x.columns(),
                                    x.template data<T>(),
                                    mean.template data<A>(),
                                    inv_std.template data<A>(),
                                    gamma.template data<A>(),
                                    beta.template data<A>(),
                                    relu,
                                    y.template data<T>()};
    const auto apply = [&](auto width) { cuda::map_columns(dev, x.rows(), x.columns(), width, f); };
    cuda::with_width<T>(x.columns(), apply, f.x, f.mean, f.inv_std, f.gamma, f.beta, f.y);
  });
}
template <KernelDevice Dev>
void batch_norm_backward_sums_on(Dev& dev, ConstView<Dev> dy, ConstView<Dev> x, ConstView<Dev> mean,
                                 ConstView<Dev> inv_std, View<Dev> sum_dy, View<Dev> sum_dy_xhat) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    const cuda::BatchNormGradientTerms<T> terms{dy.template data<T>(), x.template data<T>(),
                                                x.columns(), mean.template data<A>()};
    const cuda::FinishGradientSums<A> finish{inv_std.template data<A>(), sum_dy.template data<A>(),
                                             sum_dy_xhat.template data<A>()};
    const auto reduce = [&](auto width) {
      cuda::reduce_columns(dev, x.rows(), x.columns(), width, terms, finish);
    };
    cuda::with_width<T>(x.columns(), reduce, terms.dy, terms.x, terms.mean);
  });
}
template <KernelDevice Dev>
void batch_norm_backward_apply_on(Dev& dev, ConstView<Dev> dy, ConstView<Dev> x,
                                  ConstView<Dev> mean, ConstView<Dev> inv_std, ConstView<Dev> gamma,
                                  ConstView<Dev> sum_dy, ConstView<Dev> sum_dy_xhat, double count,
                                  View<Dev> dx) {
  visit_floating(x.dtype(), [&]<class T>(Tag<T>) {
    using A = Accumulator<T>;
    const cuda::BatchNormBackwardApply<T> f{x.columns(),
                                            dy.template data<T>(),
                                            x.template data<T>(),
                                            mean.template data<A>(),
                                            inv_std.template data<A>(),
                                            gamma.template data<A>(),
                                            sum_dy.template data<A>(),
                                            sum_dy_xhat.template data<A>(),
                                            static_cast<A>(1.0 / count),
                                            dx.template data<T>()};
    const auto apply = [&](auto width) { cuda::map_columns(dev, x.rows(), x.columns(), width, f); };
    cuda::with_width<T>(x.columns(), apply, f.dy, f.x, f.mean, f.inv_std, f.gamma, f.sum_dy,
                        f.sum_dy_xhat, f.dx);
  });
}

}  // namespace dhp
