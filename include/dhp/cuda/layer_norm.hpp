#pragma once

#include <dhp/cuda/layer_norm_kernels.hpp>
#include <dhp/ops/layer_norm.hpp>

namespace dhp::detail {

template <KernelDevice Dev>
void layer_norm_forward_on(Dev& dev, ConstView<Dev> x, ConstView<Dev> gamma, ConstView<Dev> beta,
                           double epsilon, View<Dev> y, View<Dev> mean, View<Dev> inv_std) {
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const cuda::LayerNormArguments<T> in{
        x.rows(),     x.columns(),           x.data(),
        gamma.data(), data_or_null<A>(beta), static_cast<A>(epsilon),
        y.data(),     data_or_null<A>(mean), inv_std.data()};
    cuda::launch_rows<cuda::LayerNormForward, T>(dev, in.rows, in.columns, in, in.x, in.gamma,
                                                 in.beta, in.y);
  });
}
template <KernelDevice Dev>
void layer_norm_backward_on(Dev& dev, ConstView<Dev> dy, ConstView<Dev> x, ConstView<Dev> gamma,
                            ConstView<Dev> mean, ConstView<Dev> inv_std, View<Dev> dx,
                            View<Dev> dgamma, View<Dev> dbeta, double beta) {
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const cuda::LayerNormBackwardArguments<T> in{
        x.rows(),     x.columns(),           dy.data(),      x.data(),
        gamma.data(), data_or_null<A>(mean), inv_std.data(), dx.data()};
    cuda::launch_norm_gradient<cuda::LayerNormBackward, T>(
        dev, in, {dgamma.data(), data_or_null<A>(dbeta), beta}, in.dy, in.x, in.gamma, in.dx);
  });
}
template <KernelDevice Dev>
void residual_layer_norm_forward_on(Dev& dev, ConstView<Dev> x, ConstView<Dev> residual,
                                    const RowNumbers<Dev>& rows, const DropoutOptions& options,
                                    ConstView<Dev> gamma, ConstView<Dev> beta, double epsilon,
                                    View<Dev> sum, View<Dev> y, View<Dev> mean, View<Dev> inv_std) {
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const cuda::ResidualNormArguments<T> in{
        {x.rows(), x.columns(), x.data(), gamma.data(), beta.data(), static_cast<A>(epsilon),
         y.data(), mean.data(), inv_std.data()},
        residual.data(),
        cuda::dropout_mask<T>(rows, options),
        sum.data()};
    cuda::launch_rows<cuda::ResidualNormForward, T>(dev, in.rows, in.columns, in, in.x, in.residual,
                                                    in.gamma, in.beta, in.sum, in.y);
  });
}
template <KernelDevice Dev>
void residual_layer_norm_backward_on(Dev& dev, ConstView<Dev> dy, ConstView<Dev> sum,
                                     ConstView<Dev> gamma, ConstView<Dev> mean,
                                     ConstView<Dev> inv_std, const RowNumbers<Dev>& rows,
                                     const DropoutOptions& options, View<Dev> dresidual,
                                     View<Dev> dx, View<Dev> dgamma, View<Dev> dbeta, double beta) {
  visit_floating(sum.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const cuda::ResidualNormBackwardArguments<T> in{
        {sum.rows(), sum.columns(), dy.data(), sum.data(), gamma.data(), mean.data(),
         inv_std.data(), dresidual.data()},
        cuda::dropout_mask<T>(rows, options),
        dx.data()};
    cuda::launch_norm_gradient<cuda::ResidualNormBackward, T>(
        dev, in, {dgamma.data(), dbeta.data(), beta}, in.dy, in.x, in.gamma, in.dx, in.dropped_dx);
  });
}

}  // namespace dhp::detail
