// BatchNorm (Ioffe & Szegedy 2015) normalizes the channels of [N, H, W, C]: y = norm(x), optionally with a residual and
// a ReLU: y = ReLU(norm(x) + residual). The statistics come from one micro-batch or, when synchronized, from the
// concurrent micro-batches of all replicas. Running statistics are buffer parameters: each micro-batch adds its mean
// and variance to the buffer's gradient; a step sums these gradients over the global batch and applies them once.
#pragma once

#include <dhp/nn/layer.hpp>
#include <dhp/ops/batch_norm.hpp>
#include <dhp/ops/elementwise.hpp>
#include <dhp/ops/reduce.hpp>

#include <algorithm>
#include <memory>
#include <vector>

namespace dhp {

struct BatchNormOptions {
  std::int64_t channels = 0;
  bool relu = false;
  double epsilon = 1e-5;
  double gamma_init = 1;  ///< 0 makes a residual block start as the identity
  /// Computes the statistics over all replicas. Each step then needs the same number of micro-batches on every replica.
  bool synchronized = false;
};

/// On the tensor axis, a norm placed by columns normalizes this rank's channels. With tensor groups, x and y are pieces
/// [pieces, N, H, W, channels of a group], and each piece is normalized separately.
template <class Dev>
class BatchNorm : public ElementwiseLayer<Dev, 8> {
 public:
  BatchNorm(ModelBuilder<Dev>& build, const std::string& name, BatchNormOptions options)
      : options_(options) {
    if (options.synchronized) group_ = build.data;
    const auto make = [&](const char* suffix, double init, bool buffer) {
      return build.pieces({.name = name + suffix,
                           .shape = {options.channels},
                           .init = constant(init),
                           .decays = false,
                           .keep_fp32 = true,
                           .buffer = buffer},
                          {.columns = 0});
    };
    const ParameterList<Dev> lists[] = {make(".weight", options.gamma_init, false),
                                        make(".bias", 0, false), make(".running_mean", 0, true),
                                        make(".running_var", 1, true)};
    const auto& spec = lists[0][0]->spec;
    for (const auto& list : lists)
      build.check_matching_placement(list[0]->spec, spec.placement, spec);
    const auto take = [&](BatchNorm& piece, std::size_t at) {
      piece.gamma_ = lists[0][at];
      piece.beta_ = lists[1][at];
      piece.running_mean_ = lists[2][at];
      piece.running_var_ = lists[3][at];
    };
    const auto count = lists[0].size();
    if (count == 1) take(*this, 0);
    for (std::size_t at = 0; count > 1 && at < count; ++at) {
      pieces_.push_back(BatchNorm(options, group_));
      take(pieces_.back(), at);
    }
  }

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    return forward(dev, std::move(x), Tensor<Dev>(), tape);
  }
  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    return backward_of(dev, std::move(dy), false, tape).dx;
  }

  /// Computes norm(x) + residual, then the ReLU if the options ask for one; residual has x's shape.
  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tensor<Dev> residual, Tape<Dev>& tape) {
    const bool adds = !residual.empty();
    check(!adds || residual.shape() == x.shape(), "batch norm: a residual of ", residual.shape(),
          " cannot be added to ", x.shape());
    if (!pieces_.empty()) return forward_pieces(dev, x, residual, tape);
    auto result = normalize(dev, x, std::move(residual), tape);
    std::shared_ptr<const detail::NormTrace<Dev>> trace;
    if (!result.signs.empty())
      trace = std::make_shared<const detail::NormTrace<Dev>>(detail::NormTrace<Dev>{
          x.share(), result.mean.share(), result.inv_std.share(), result.signs.share()});
    tape.push(std::move(x));
    tape.push(std::move(result.mean));
    tape.push(std::move(result.inv_std));
    tape.push(std::move(result.signs));
    // The ReLU's backward pass needs y if there is a residual; otherwise x tells it where y > 0.
    if (options_.relu && adds) tape.push(result.y.share());
    result.y.carry_norm(std::move(trace));
    return std::move(result.y);
  }
  detail::BatchNormGradients<Dev> backward_with_residual(Dev& dev, Tensor<Dev> dy,
                                                         Tape<Dev>& tape) {
    return backward_of(dev, std::move(dy), true, tape);
  }

  void parameters(ParameterList<Dev>& out) const {
    for (const auto& piece : pieces_) piece.parameters(out);
    if (!pieces_.empty()) return;
    for (const auto& parameter : {gamma_, beta_, running_mean_, running_var_})
      out.push_back(parameter);
  }

 private:
  /// Makes the norm of one piece; the caller sets its parameters.
  BatchNorm(BatchNormOptions options, Comm<Dev> group)
      : options_(options), group_(std::move(group)) {}

  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(pieces_.size()); }
  [[nodiscard]] Tensor<Dev> part_of_piece(const Tensor<Dev>& all, std::int64_t at) const {
    const auto shape = detail::shape_of_piece(static_cast<int>(count()), all.shape());
    return all.part(at, at + 1).reshape(shape);
  }
  static void put(Dev& dev, const Tensor<Dev>& piece, std::int64_t at, Tensor<Dev>& all) {
    detail::copy(dev, piece, all.mut().slice(at, at + 1));
  }
  Tensor<Dev> forward_pieces(Dev& dev, const Tensor<Dev>& x, const Tensor<Dev>& residual,
                             Tape<Dev>& tape) {
    Tensor<Dev> y(dev, x.dtype(), x.shape());  // [pieces, ..., C]
    for (std::int64_t at = 0; at < count(); ++at) {
      auto added = residual ? part_of_piece(residual, at) : Tensor<Dev>();
      put(dev,
          pieces_[detail::as_size(at)].forward(dev, part_of_piece(x, at), std::move(added), tape),
          at, y);
    }
    return y;
  }
  detail::BatchNormGradients<Dev> backward_of(Dev& dev, Tensor<Dev> dy, bool residual,
                                              Tape<Dev>& tape) {
    if (pieces_.empty()) return gradients(dev, std::move(dy), residual, tape);
    detail::BatchNormGradients<Dev> all;
    all.dx = Tensor<Dev>(dev, dy.dtype(), dy.shape());
    if (residual) all.dresidual = Tensor<Dev>(dev, dy.dtype(), dy.shape());
    for (auto at = count(); at-- > 0;) {
      const auto result =
          pieces_[detail::as_size(at)].gradients(dev, part_of_piece(dy, at), residual, tape);
      put(dev, result.dx, at, all.dx);
      if (residual) put(dev, result.dresidual, at, all.dresidual);
    }
    return all;
  }

  detail::BatchNormResult<Dev> normalize(Dev& dev, const Tensor<Dev>& of, Tensor<Dev> residual,
                                         const Tape<Dev>& tape) {
    const auto x = of.view();
    const bool alone = tape.context().training() && group_.size() == 1;
    const auto sums = alone ? of.column_sums() : ConstView<Dev>();
    if (alone && sums.empty()) {
      auto result = detail::batch_norm_fused(dev, x, residual.view(), gamma_->value, beta_->value,
                                             options_.epsilon, options_.relu);
      if (result) {
        add_statistics(dev, tape, result->mean.view(), result->squared_deviations.view(),
                       static_cast<double>(x.rows()));
        return std::move(*result);
      }
    }
    detail::BatchNormResult<Dev> result;
    const auto accumulation = accumulation_type(x.dtype());
    result.mean = Tensor<Dev>(dev, accumulation, {x.columns()});
    result.inv_std = Tensor<Dev>(dev, accumulation, {x.columns()});
    if (!sums.empty()) statistics_from_sums(dev, sums, x.rows(), result.mean, result.inv_std, tape);
    else if (tape.context().training()) batch_statistics(dev, x, result.mean, result.inv_std, tape);
    else {
      cast(dev, ConstView<Dev>(running_mean_->value), result.mean.mut());
      rsqrt(dev, ConstView<Dev>(running_var_->value), options_.epsilon, result.inv_std.mut());
    }
    const auto added = residual.view();
    if (!sums.empty()) {
      if (auto fused = detail::batch_norm_fused_apply(dev, x, vectors(result.mean, result.inv_std),
                                                      added, options_.relu)) {
        result.y = std::move(fused->y);
        result.signs = std::move(fused->signs);
        return result;
      }
    }
    result.y = residual.unique() ? std::move(residual) : Tensor<Dev>(dev, x.dtype(), x.shape());
    detail::batch_norm_apply(dev, x, vectors(result.mean, result.inv_std), added, options_.relu,
                             result.y.mut());
    return result;
  }
  /// Computes the statistics from the column sums that were attached to x when it was computed.
  void statistics_from_sums(Dev& dev, ConstView<Dev> sums, std::int64_t rows, Tensor<Dev>& mean,
                            Tensor<Dev>& inv_std, const Tape<Dev>& tape) {
    Tensor<Dev> squared_deviations(dev, mean.dtype(), mean.shape());  // [C]
    detail::batch_norm_from_sums(dev, sums, rows, options_.epsilon, mean.mut(), inv_std.mut(),
                                 squared_deviations.mut());
    add_statistics(dev, tape, mean.view(), squared_deviations.view(), static_cast<double>(rows));
  }
  void batch_statistics(Dev& dev, ConstView<Dev> x, Tensor<Dev>& mean, Tensor<Dev>& inv_std,
                        const Tape<Dev>& tape) {
    check(group_.size() == 1 || tape.context().equal_shares,
          "synchronized batch norm needs the same number of micro-batches on all replicas, but in "
          "this step their numbers differ; choose sizes that give all replicas the same number");
    double count = static_cast<double>(x.rows());
    if (group_.size() > 1) count = summed_over_group(dev, tape, count);
    column_sums(dev, x, mean.mut(), 0);
    if (group_.size() > 1) group_.all_reduce(dev, mean.mut()).wait();
    scale(dev, 1.0 / count, mean.mut());
    Tensor<Dev> variance(dev, mean.dtype(), mean.shape());  // [C]
    detail::batch_norm_squared_deviations(dev, x, mean.view(), variance.mut());
    if (group_.size() > 1) group_.all_reduce(dev, variance.mut()).wait();
    add_statistics(dev, tape, mean.view(), variance.view(), count);
    scale(dev, 1.0 / count, variance.mut());
    rsqrt(dev, variance.view(), options_.epsilon, inv_std.mut());
  }

  detail::BatchNormGradients<Dev> gradients(Dev& dev, Tensor<Dev> dy, bool residual,
                                            Tape<Dev>& tape) {
    const Tensor<Dev> y = options_.relu && residual ? tape.pop() : Tensor<Dev>();
    const Tensor<Dev> signs = tape.pop();    // packed signs in a format of the device, or empty
    const Tensor<Dev> inv_std = tape.pop();  // [C]
    const Tensor<Dev> mean = tape.pop();     // [C]
    const Tensor<Dev> x = tape.pop();        // [..., C]
    const auto of = vectors(mean, inv_std);
    if (group_.size() == 1) {
      if (dy.has_norm_sums()) {  // this dy and its sums have already passed the ReLU
        auto sums = dy.take_norm_sums();
        add_gradients(dev, sums);
        return applied(dev, std::move(dy), x, of, false, residual, static_cast<double>(x.rows()),
                       std::move(sums));
      }
      if (auto result = detail::batch_norm_fused_backward(dev, dy.view(), x.view(), of,
                                                          signs.view(), options_.relu, residual)) {
        add_gradients(dev, result->sums);
        return std::move(*result);
      }
    }
    return unfused_gradients(dev, std::move(dy), x, of, y, residual, tape);
  }
  /// y: the forward result if there are a residual and a ReLU, else empty. Overwrites dy if it is not shared.
  detail::BatchNormGradients<Dev> unfused_gradients(Dev& dev, Tensor<Dev> dy, const Tensor<Dev>& x,
                                                    const detail::BatchNormVectors<Dev>& of,
                                                    const Tensor<Dev>& y, bool residual,
                                                    const Tape<Dev>& tape) {
    const bool gated = !y.empty();
    Tensor<Dev> sums(dev, of.mean.dtype(), {2, x.columns()});
    const auto incoming = dy.view();
    auto passed = gated ? reuse(dev, dy) : Tensor<Dev>();  // the shape of dy
    detail::batch_norm_backward_sums(dev, incoming, x.view(), of, options_.relu, row(sums, 0),
                                     row(sums, 1), y.view(), passed.mut());
    if (gated) dy = std::move(passed);
    add_gradients(dev, sums);
    double count = static_cast<double>(x.rows());
    if (group_.size() > 1) {
      count = summed_over_group(dev, tape, count);
      group_.all_reduce(dev, sums.mut()).wait();
    }
    return applied(dev, std::move(dy), x, of, options_.relu && !gated, residual, count,
                   std::move(sums));
  }
  /// relu: the gradient dy still has to pass the ReLU.
  detail::BatchNormGradients<Dev> applied(Dev& dev, Tensor<Dev> dy, const Tensor<Dev>& x,
                                          const detail::BatchNormVectors<Dev>& of, bool relu,
                                          bool residual, double count, Tensor<Dev> sums) {
    detail::BatchNormGradients<Dev> result;
    const auto incoming = dy.view();
    if (residual) result.dresidual = dy.share();
    result.dx = reuse(dev, dy);
    detail::batch_norm_backward_apply(dev, incoming, x.view(), of, relu, row(sums, 0), row(sums, 1),
                                      count, result.dx.mut());
    result.sums = std::move(sums);
    return result;
  }

  [[nodiscard]] detail::BatchNormVectors<Dev> vectors(const Tensor<Dev>& mean,
                                                      const Tensor<Dev>& inv_std) const {
    return {mean.view(), inv_std.view(), gamma_->value, beta_->value};
  }
  /// Row 0 holds sum(dy), the gradient of beta; row 1 holds sum(dy * normalized x), the gradient of gamma.
  [[nodiscard]] static View<Dev> row(Tensor<Dev>& sums, int which) {
    return sums.mut().slice(which, which + 1).as({sums.columns()});
  }
  void add_gradients(Dev& dev, Tensor<Dev>& sums) {
    accumulate_both(dev, beta_, {1.0, row(sums, 0)}, gamma_, {1.0, row(sums, 1)});
  }
  void add_statistics(Dev& dev, const Tape<Dev>& tape, ConstView<Dev> mean,
                      ConstView<Dev> squared_deviations, double count) {
    if (tape.recomputing()) return;
    // The running variance is the unbiased estimate, as in PyTorch.
    accumulate_both(dev, running_mean_, {1.0, mean}, running_var_,
                    {1.0 / std::max(1.0, count - 1), squared_deviations});
  }
  struct Scaled {
    double factor;
    ConstView<Dev> vector;
  };
  /// Adds both vectors in one kernel launch, because they are short.
  static void accumulate_both(Dev& dev, const Parameter<Dev>& one, const Scaled& to_one,
                              const Parameter<Dev>& other, const Scaled& to_other) {
    detail::accumulate_all(dev, {one, other}, [&](const std::vector<View<Dev>>& sums, double beta) {
      detail::add_both(dev, {to_one.factor, to_one.vector, sums[0]},
                       {to_other.factor, to_other.vector, sums[1]}, beta);
    });
  }
  /// Returns the number of rows of all replicas. The host waits for the other replicas unless all have the same shapes.
  double summed_over_group(Dev& dev, const Tape<Dev>& tape, double count) {
    if (tape.context().same_shapes) return count * group_.size();
    auto total = Tensor<Dev>::from_host(dev, {1}, std::vector<double>{count});
    group_.all_reduce(dev, total.mut()).wait();
    group_.synchronize(dev);
    return total.template to_host<double>(dev)[0];
  }

  BatchNormOptions options_;
  Comm<Dev> group_;
  Parameter<Dev> gamma_, beta_, running_mean_, running_var_;  // null if there are pieces
  std::vector<BatchNorm> pieces_;
};

}  // namespace dhp
