// Multi-head self-attention (Vaswani et al. 2017, section 3.2) without the output projection, which is another layer.
// Samples are ragged and attend only to themselves: side inputs "offsets", "lengths", "row_numbers"
// (ops/attention.hpp).
#pragma once

#include <dhp/nn/fused_parameters.hpp>
#include <dhp/nn/linear.hpp>
#include <dhp/ops/attention.hpp>

#include <algorithm>
#include <array>
#include <vector>

namespace dhp {

struct SelfAttentionOptions {
  int heads = 1;                ///< of the whole layer
  std::int64_t columns = 0;     ///< of the whole layer; the head size is columns / heads
  std::int64_t max_length = 0;  ///< longest sample; numbers the attention dropout
  double dropout = 0;
};

/// x [rows, columns], y [rows, columns of this rank's heads]; weights "name.query.weight", ..., all with one placement.
template <class Dev>
class SelfAttention final {
 public:
  SelfAttention(ModelBuilder<Dev>& build, const std::string& name, SelfAttentionOptions options)
      : options_(options), use_(build.next_use()) {
    const bool by_heads = build.placement(name + ".query.weight") == Placement::heads;
    if (by_heads) gradient_sum_ = GroupSum<Dev>(build.tensor);
    const int parts = by_heads ? build.tensor.size() : 1;
    check_heads(name, parts);
    int fused = 2;
    for (const auto* which : {".query", ".key", ".value"}) {
      projections_.emplace_back(
          build, name + which,
          LinearOptions{.in = options.columns, .out = options.columns, .fused = fused--},
          PlacementDims{.heads = 0});
      weights_.push_back(projections_.back().weight());
      biases_.push_back(projections_.back().bias());
      build.check_beside(weights_.back()->spec, weights_[0]->spec.placement, weights_[0]->spec);
    }
    adapted_ = std::any_of(projections_.begin(), projections_.end(),
                           [](const auto& linear) { return linear.is_adapted(); });
    local_heads_ = options.heads / parts;
    first_head_ = by_heads ? local_heads_ * build.tensor.rank() : 0;
  }

  /// q, k and v are the columns of one matrix, from one product.
  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    if (adapted_) return forward_apart(dev, std::move(x), tape);
    const auto columns = local_columns();
    const detail::FusedValues<Dev> weight(dev, weights_), bias(dev, biases_);
    Tensor<Dev> qkv(dev, x.dtype(), {x.rows(), 3 * columns});
    gemm(dev, detail::as_matrix(x.view()), weight.view(), qkv.mut(), {.transpose_b = true},
         bias.view());
    tape.push(std::move(x));
    Tensor<Dev> y(dev, qkv.dtype(), {qkv.rows(), columns});
    Tensor<Dev> logsumexp(dev, accumulation_type(qkv.dtype()), {local_heads_, qkv.rows()});
    const auto in = qkv.view();
    attention_forward(dev, third(in, 0), third(in, 1), third(in, 2), sequences(tape),
                      options_for(tape, 3 * columns), y.mut(), logsumexp.mut());
    tape.push(std::move(qkv));
    tape.push(y.share());
    tape.push(std::move(logsumexp));
    return y;
  }

  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    return backward_onto(dev, std::move(dy), {}, tape);
  }
  /// onto may be empty.
  Tensor<Dev> backward_onto(Dev& dev, Tensor<Dev> dy, Tensor<Dev> onto, Tape<Dev>& tape) {
    onto = gradient_sum_.once(std::move(onto));
    const double beta = onto ? 1 : 0;
    const Shape shape{dy.rows(), options_.columns};
    auto dx = detail::writable(dev, std::move(onto), dy.dtype(), shape);
    dx = backward_into(dev, std::move(dy), std::move(dx), beta, tape);
    gradient_sum_(dev, dx);
    return dx;
  }

  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>&) const {
    return in.with(in.rank() - 1, weights_[0]->spec.local_shape()[0]);
  }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>& batch) const {
    const double local = static_cast<double>(output_shape(in, batch).count());
    return local * (6 * static_cast<double>(options_.columns) +
                    4 * static_cast<double>(options_.max_length));
  }
  void parameters(ParameterList<Dev>& out) const {
    out.insert(out.end(), weights_.begin(), weights_.end());
    out.insert(out.end(), biases_.begin(), biases_.end());
    for (const auto& linear : projections_) linear.adapter_parameters(out);
  }

 private:
  /// Unfused path for adapters (LoRA).
  Tensor<Dev> forward_apart(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    std::array<Tensor<Dev>, 3> qkv;
    for (std::size_t at = 0; at < 3; ++at) qkv[at] = projections_[at].forward(dev, x.share(), tape);
    const auto& [q, k, v] = qkv;
    Tensor<Dev> y(dev, q.dtype(), q.shape());
    Tensor<Dev> logsumexp(dev, accumulation_type(q.dtype()), {local_heads_, q.rows()});
    attention_forward(dev, q.view(), k.view(), v.view(), sequences(tape),
                      options_for(tape, q.columns()), y.mut(), logsumexp.mut());
    for (auto& part : qkv) tape.push(std::move(part));
    tape.push(y.share());
    tape.push(std::move(logsumexp));
    return y;
  }
  Tensor<Dev> backward_apart(Dev& dev, Tensor<Dev> dy, Tensor<Dev> dx, double beta,
                             Tape<Dev>& tape) {
    const Tensor<Dev> logsumexp = tape.pop();
    const Tensor<Dev> y = tape.pop();
    std::array<Tensor<Dev>, 3> qkv, gradients;
    for (std::size_t at = 3; at-- > 0;) {
      qkv[at] = tape.pop();
      gradients[at] = Tensor<Dev>(dev, dy.dtype(), dy.shape());
    }
    const auto& [q, k, v] = qkv;
    auto& [dq, dk, dv] = gradients;
    attention_backward(dev, dy.view(), q.view(), k.view(), v.view(), y.view(), logsumexp.view(),
                       sequences(tape), options_for(tape, q.columns()), dq.mut(), dk.mut(),
                       dv.mut());
    for (std::size_t at = 3; at-- > 0; beta = 1)
      projections_[at].backward_into(dev, std::move(gradients[at]), dx.mut(), beta, tape);
    return dx;
  }

  /// beta dx + the gradient of x.
  Tensor<Dev> backward_into(Dev& dev, Tensor<Dev> dy, Tensor<Dev> dx, double beta,
                            Tape<Dev>& tape) {
    if (adapted_) return backward_apart(dev, std::move(dy), std::move(dx), beta, tape);
    const Tensor<Dev> logsumexp = tape.pop();
    const Tensor<Dev> y = tape.pop();
    const Tensor<Dev> qkv = tape.pop();
    Tensor<Dev> x = tape.pop();
    Tensor<Dev> dqkv(dev, qkv.dtype(), qkv.shape());
    const auto in = qkv.view();
    const auto out = dqkv.mut();
    attention_backward(dev, dy.view(), third(in, 0), third(in, 1), third(in, 2), y.view(),
                       logsumexp.view(), sequences(tape), options_for(tape, in.columns()),
                       third(out, 0), third(out, 1), third(out, 2));
    gemm(dev, dqkv.view(), detail::FusedValues<Dev>(dev, weights_).view(), dx.mut(),
         {.beta = beta});
    if (!is_trained(weights_) && !is_trained(biases_)) return dx;
    tape.weight_gradient(dev, [weights = weights_, biases = biases_, x = std::move(x),
                               dqkv = std::move(dqkv)](Dev& device) {
      detail::accumulate_fused(
          device, weights, biases, [&](View<Dev> dw, View<Dev> dbias, double old) {
            detail::linear_gradients(device, dqkv.view(), detail::as_matrix(x.view()), dw, dbias,
                                     old);
          });
    });
    return dx;
  }
  void check_heads(const std::string& name, int parts) const {
    const int heads = options_.heads;
    check(heads >= 1 && options_.columns % heads == 0, name, ": ", options_.columns,
          " columns cannot be divided into ", heads, " heads");
    check(heads % parts == 0, name, ", by heads: ", heads,
          " heads cannot be split over a tensor axis of ", parts,
          "; choose the tensor axis among the divisors of the number of heads");
  }
  [[nodiscard]] std::int64_t local_columns() const { return weights_[0]->spec.local_shape()[0]; }
  /// Columns of q, k or v; its rows are row_stride apart.
  template <class AnyView>
  [[nodiscard]] AnyView third(AnyView of, int which) const {
    const auto columns = of.columns() / 3;
    return {of.bytes() + static_cast<std::size_t>(which * columns) * size_of(of.dtype()),
            of.dtype(),
            {of.rows(), columns}};
  }
  [[nodiscard]] Sequences<Dev> sequences(const Tape<Dev>& tape) const {
    const auto& batch = tape.batch();
    return {batch.at("offsets").view(), batch.at("lengths").view(), batch.at("row_numbers").view(),
            options_.max_length};
  }
  [[nodiscard]] AttentionOptions options_for(const Tape<Dev>& tape, std::int64_t row_stride) const {
    return {.heads = local_heads_,
            .first_head = first_head_,
            .total_heads = options_.heads,
            .dropout = tape.context().training() ? options_.dropout : 0,
            .random = tape.context().random(use_),
            .row_stride = row_stride};
  }

  SelfAttentionOptions options_;
  std::uint32_t use_;
  int local_heads_ = 0;
  int first_head_ = 0;
  std::vector<Linear<Dev>> projections_;  // query, key, value
  ParameterList<Dev> weights_, biases_;   // theirs
  bool adapted_ = false;
  GroupSum<Dev> gradient_sum_;
};

}  // namespace dhp
