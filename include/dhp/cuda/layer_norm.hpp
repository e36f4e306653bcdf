#pragma once

#include <dhp/cuda/layer_norm_kernels.hpp>
#include <dhp/ops/layer_norm.hpp>

namespace dhp::detail {

/// If `sum` is given, normalizes sum = residual + dropout(x).
template <KernelDevice Dev>
void layer_norm_forward_on(Dev& dev, ConstView<Dev> x, ConstView<Dev> gamma, ConstView<Dev> beta,
                           double epsilon, View<Dev> y, View<Dev> mean, View<Dev> inv_std,
                           const NormBranch<Dev>& branch, ConstView<Dev> residual, View<Dev> sum) {
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const cuda::LayerNormArguments<T> in{
        x.rows(),     x.columns(),           x.data(),
        gamma.data(), data_or_null<A>(beta), static_cast<A>(epsilon),
        y.data(),     data_or_null<A>(mean), inv_std.data()};
    if (sum.empty())
      return cuda::launch_rows<cuda::LayerNormForward, T>(dev, in.rows, in.columns, in, in.x,
                                                          in.gamma, in.beta, in.y);
    const cuda::ResidualNormArguments<T> all{
        in, residual.data(), cuda::dropout_mask<T>(branch.rows, branch.dropout), sum.data()};
    cuda::launch_rows<cuda::ResidualNormForward, T>(dev, in.rows, in.columns, all, in.x,
                                                    all.residual, in.gamma, in.beta, all.sum, in.y);
  });
}
/// If dropped_dx is given, writes the dropout of the unrounded gradient to it.
template <KernelDevice Dev>
void layer_norm_backward_on(Dev& dev, ConstView<Dev> dy, ConstView<Dev> x, ConstView<Dev> gamma,
                            ConstView<Dev> mean, ConstView<Dev> inv_std, View<Dev> dx,
                            View<Dev> dgamma, View<Dev> dbeta, double beta,
                            const NormBranch<Dev>& branch, View<Dev> dropped_dx) {
  visit_floating(x.dtype(), [&]<class T, class A>(Tags<T, A>) {
    const cuda::AddLayerNormSums<A> finish{dgamma.data(), data_or_null<A>(dbeta), beta};
    const cuda::LayerNormBackwardArguments<T> in{
        x.rows(),     x.columns(),           dy.data(),      x.data(),
        gamma.data(), data_or_null<A>(mean), inv_std.data(), dx.data()};
    if (dropped_dx.empty())
      return cuda::launch_norm_gradient<cuda::LayerNormBackward, T>(dev, in, finish, in.dy, in.x,
                                                                    in.gamma, in.dx);
    const cuda::ResidualNormBackwardArguments<T> all{
        in, cuda::dropout_mask<T>(branch.rows, branch.dropout), dropped_dx.data()};
    cuda::launch_norm_gradient<cuda::ResidualNormBackward, T>(dev, all, finish, in.dy, in.x,
                                                              in.gamma, in.dx, all.dropped_dx);
  });
}

}  // namespace dhp::detail
