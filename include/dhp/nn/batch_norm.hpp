// BatchNorm (Ioffe & Szegedy 2015) over the rows of [N, H, W, C], with an optional ReLU behind it.
// It normalises over its micro-batch, or over the micro-batches that the data axis works on at the same
// time (synchronised). Running statistics are parameters of the buffer kind: each micro-batch adds its
// mean and variance to their "gradient", which is summed over the global batch and applied once a step.
#pragma once

#include <dhp/nn/layer.hpp>
#include <dhp/ops/activation.hpp>
#include <dhp/ops/batch_norm.hpp>

#include <cmath>

namespace dhp {

struct BatchNormOptions {
  std::int64_t channels = 0;
  bool relu = false;
  double epsilon = 1e-5;
  double gamma_init = 1;  ///< 0 in the last norm of a residual block: it starts as the identity
  bool split = false;     ///< this rank of the tensor axis holds its part of the channels
  /// Over the data axis; every replica then needs as many micro-batches in each step.
  bool synchronised = false;
};

template <class Dev>
class BatchNorm {
 public:
  BatchNorm(Build<Dev>& build, const std::string& name, BatchNormOptions options)
      : options_(options) {
    if (options.synchronised) group_ = build.data;
    const auto make = [&](const char* suffix, double init, bool buffer) {
      ParameterSpec spec{.name = name + suffix,
                         .shape = {options.channels},
                         .init = constant(init),
                         .decays = false,
                         .exact = true,
                         .buffer = buffer};
      if (options.split) spec = split(spec, 0, build.tensor.size(), build.tensor.rank());
      return build.parameter(spec);
    };
    gamma_ = make(".weight", options.gamma_init, false);
    beta_ = make(".bias", 0, false);
    running_mean_ = make(".running_mean", 0, true);
    running_var_ = make(".running_var", 1, true);
  }

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    const auto accumulation = accumulation_type(x.dtype());
    Tensor<Dev> mean(dev, accumulation, {x.columns()});
    Tensor<Dev> inv_std(dev, accumulation, {x.columns()});
    if (tape.context().training()) normalise_by_batch(dev, x, mean, inv_std, tape.context());
    else normalise_by_running(dev, mean, inv_std);

    Tensor<Dev> y(dev, x.dtype(), x.shape());
    batch_norm_apply(dev, x.view(), mean.view(), inv_std.view(), gamma_->value, beta_->value,
                     options_.relu, y.mut());
    tape.push(std::move(x));
    tape.push(std::move(mean));
    tape.push(std::move(inv_std));
    if (options_.relu) tape.push(y.share());
    return y;
  }

  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    if (options_.relu) {
      const Tensor<Dev> y = tape.pop();
      Tensor<Dev> through = dy.unique() ? std::move(dy) : Tensor<Dev>(dev, dy.dtype(), dy.shape());
      activation_backward(dev, Activation::relu, y.view(), dy.empty() ? through.view() : dy.view(),
                          through.mut());
      dy = std::move(through);
    }
    const Tensor<Dev> inv_std = tape.pop();
    const Tensor<Dev> mean = tape.pop();
    const Tensor<Dev> x = tape.pop();
    // Row 0: sum of dy, which is beta's gradient; row 1: sum of dy * normalised x, gamma's.
    Tensor<Dev> sums(dev, mean.dtype(), {2, x.columns()});
    const auto row = [&](int which) { return sums.mut().slice(which, which + 1).as(mean.shape()); };
    batch_norm_backward_sums(dev, dy.view(), x.view(), mean.view(), inv_std.view(), row(0), row(1));
    const auto add_sum = [&](Parameter<Dev>& parameter, int which) {
      parameter->accumulate(dev, [&](View<Dev> gradient, double beta) {
        if (beta == 0) cast(dev, ConstView<Dev>(row(which)), gradient);
        else axpy(dev, 1.0, ConstView<Dev>(row(which)), gradient);
      });
    };
    add_sum(beta_, 0);
    add_sum(gamma_, 1);
    double count = static_cast<double>(x.rows());
    if (group_.size() > 1) {
      count = summed_over_group(dev, count);
      group_.all_reduce(dev, sums.mut()).wait();
    }
    Tensor<Dev> dx(dev, x.dtype(), x.shape());
    batch_norm_backward_apply(dev, dy.view(), x.view(), mean.view(), inv_std.view(), gamma_->value,
                              row(0), row(1), count, dx.mut());
    return dx;
  }

  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>&) const { return in; }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>&) const {
    return 8.0 * static_cast<double>(in.count());
  }
  void parameters(ParameterList<Dev>& out) const {
    for (const auto& parameter : {gamma_, beta_, running_mean_, running_var_})
      out.push_back(parameter);
  }

 private:
  void normalise_by_batch(Dev& dev, const Tensor<Dev>& x, Tensor<Dev>& mean, Tensor<Dev>& inv_std,
                          const StepContext<Dev>& context) {
    check(
        group_.size() == 1 || context.equal_shares,
        "batch norm is synchronised over the replicas, but in this step they have unequal numbers "
        "of micro-batches and would wait for each other for ever; choose sizes that deal as many "
        "to each replica");
    double count = static_cast<double>(x.rows());
    if (group_.size() > 1) count = summed_over_group(dev, count);
    batch_norm_sums(dev, x.view(), mean.mut());
    if (group_.size() > 1) group_.all_reduce(dev, mean.mut()).wait();
    scale(dev, 1.0 / count, mean.mut());
    Tensor<Dev> variance(dev, mean.dtype(), mean.shape());
    batch_norm_squared_deviations(dev, x.view(), mean.view(), variance.mut());
    if (group_.size() > 1) group_.all_reduce(dev, variance.mut()).wait();
    if (!context.recomputing) {
      add_running(dev, *running_mean_, mean.view(), 1.0);
      // The running variance is the unbiased estimate, as in PyTorch.
      add_running(dev, *running_var_, variance.view(), 1.0 / std::max(1.0, count - 1));
    }
    scale(dev, 1.0 / count, variance.mut());
    inverse_root(dev, variance.view(), options_.epsilon, inv_std.mut());
  }
  void normalise_by_running(Dev& dev, Tensor<Dev>& mean, Tensor<Dev>& inv_std) {
    cast(dev, ConstView<Dev>(running_mean_->value), mean.mut());
    inverse_root(dev, ConstView<Dev>(running_var_->value), options_.epsilon, inv_std.mut());
  }
  void add_running(Dev& dev, ParameterState<Dev>& running, ConstView<Dev> statistic,
                   double factor) {
    running.accumulate(dev, [&](View<Dev> sum, double beta) {
      if (beta == 0) fill(dev, sum, 0);
      axpy(dev, factor, statistic, sum);
    });
  }
  double summed_over_group(Dev& dev, double count) {
    auto total = Tensor<Dev>::from_host(dev, {1}, std::vector<double>{count});
    group_.all_reduce(dev, total.mut()).wait();
    return total.template to_host<double>(dev)[0];
  }

  BatchNormOptions options_;
  Comm<Dev> group_;
  Parameter<Dev> gamma_, beta_, running_mean_, running_var_;
};

}  // namespace dhp
