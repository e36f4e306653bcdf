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

/// x [rows, columns], y [rows, columns of this rank's heads], with tensor groups [pieces, rows, columns of a group's
/// heads]; weights "name.query.weight", ..., all with one placement.
template <class Dev>
class SelfAttention final {
 public:
  SelfAttention(ModelBuilder<Dev>& build, const std::string& name, SelfAttentionOptions options)
      : options_(options), use_(build.next_use()) {
    const auto placement = build.placement(name + ".query.weight");
    const bool by_heads = placement == Placement::heads;
    if (by_heads) gradient_sum_ = build.sum_of_pieces(placement);
    const int parts = by_heads ? build.tensor.size() * gradient_sum_.pieces() : 1;
    check_heads(name, parts);
    int fused = gradient_sum_.is_grouped() ? 0 : 2;
    for (const auto* which : {".query", ".key", ".value"}) {
      projections_.emplace_back(
          build, name + which,
          LinearOptions{.in = options.columns, .out = options.columns, .fused = fused},
          PlacementDims{.heads = 0});
      fused = std::max(fused - 1, 0);
      build.check_beside(projections_.back().spec(), projections_[0].spec().placement,
                         projections_[0].spec());
    }
    apart_ = gradient_sum_.is_grouped() ||
             std::any_of(projections_.begin(), projections_.end(),
                         [](const auto& linear) { return linear.is_adapted(); });
    if (!apart_)
      for (const auto& projection : projections_) {
        weights_.push_back(projection.weights()[0]);
        biases_.push_back(projection.biases()[0]);
      }
    heads_of_piece_ = options.heads / parts;
    first_head_ = by_heads ? heads_of_piece_ * gradient_sum_.pieces() * build.tensor.rank() : 0;
  }

  /// q, k and v are the columns of one matrix, from one product.
  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    if (apart_) return forward_apart(dev, std::move(x), tape);
    const auto columns = local_columns();
    const detail::FusedValues<Dev> weight(dev, weights_), bias(dev, biases_);
    Tensor<Dev> qkv(dev, x.dtype(), {x.rows(), 3 * columns});
    gemm(dev, detail::as_matrix(x.view()), weight.view(), qkv.mut(), {.transpose_b = true},
         bias.view());
    tape.push(std::move(x));
    Tensor<Dev> y(dev, qkv.dtype(), {qkv.rows(), columns});
    Tensor<Dev> logsumexp(dev, accumulation_type(qkv.dtype()), {heads_of_piece_, qkv.rows()});
    const auto in = qkv.view();
    attention_forward(dev, third(in, 0), third(in, 1), third(in, 2), sequences(tape),
                      options_for(tape, 0, 3 * columns), y.mut(), logsumexp.mut());
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
    if (apart_) return backward_apart(dev, std::move(dy), std::move(onto), tape);
    const Tensor<Dev> logsumexp = tape.pop();
    const Tensor<Dev> y = tape.pop();
    const Tensor<Dev> qkv = tape.pop();
    Tensor<Dev> x = tape.pop();
    Tensor<Dev> dqkv(dev, qkv.dtype(), qkv.shape());
    const auto in = qkv.view();
    const auto out = dqkv.mut();
    attention_backward(dev, dy.view(), third(in, 0), third(in, 1), third(in, 2), y.view(),
                       logsumexp.view(), sequences(tape), options_for(tape, 0, in.columns()),
                       third(out, 0), third(out, 1), third(out, 2));
    auto dx = gradient_sum_(dev, dy.dtype(), x_shape(dy.rows()), std::move(onto),
                            [&](int, View<Dev> to, double beta) {
                              gemm(dev, dqkv.view(), detail::FusedValues<Dev>(dev, weights_).view(),
                                   to, {.beta = beta});
                            });
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

  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>& batch) const {
    return projections_[0].output_shape(in, batch);
  }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>& batch) const {
    const double local = static_cast<double>(output_shape(in, batch).count());
    return local * (6 * static_cast<double>(options_.columns) +
                    4 * static_cast<double>(options_.max_length));
  }
  void parameters(ParameterList<Dev>& out) const {
    const auto add = [&](const auto& list) { out.insert(out.end(), list.begin(), list.end()); };
    for (const auto& linear : projections_) add(linear.weights());
    for (const auto& linear : projections_) add(linear.biases());
    for (const auto& linear : projections_) linear.adapter_parameters(out);
  }

 private:
  /// Unfused path, for adapters (LoRA) and tensor groups.
  Tensor<Dev> forward_apart(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    std::array<Tensor<Dev>, 3> qkv;
    for (std::size_t at = 0; at < 3; ++at) qkv[at] = projections_[at].forward(dev, x.share(), tape);
    const auto& [q, k, v] = qkv;
    Tensor<Dev> y(dev, q.dtype(), q.shape());
    Tensor<Dev> logsumexp(dev, accumulation_type(q.dtype()), {pieces(), heads_of_piece_, x.rows()});
    for (int at = 0; at < pieces(); ++at)
      attention_forward(dev, piece(q.view(), at), piece(k.view(), at), piece(v.view(), at),
                        sequences(tape), options_for(tape, at, 0), piece(y.mut(), at),
                        logsumexp.mut().slice(at, at + 1));
    for (auto& part : qkv) tape.push(std::move(part));
    tape.push(y.share());
    tape.push(std::move(logsumexp));
    return y;
  }
  Tensor<Dev> backward_apart(Dev& dev, Tensor<Dev> dy, Tensor<Dev> onto, Tape<Dev>& tape) {
    const Tensor<Dev> logsumexp = tape.pop();
    const Tensor<Dev> y = tape.pop();
    std::array<Tensor<Dev>, 3> qkv, gradients;
    for (std::size_t at = 3; at-- > 0;) {
      qkv[at] = tape.pop();
      gradients[at] = Tensor<Dev>(dev, dy.dtype(), dy.shape());
    }
    const auto& [q, k, v] = qkv;
    auto& [dq, dk, dv] = gradients;
    for (int at = 0; at < pieces(); ++at)
      attention_backward(
          dev, piece(dy.view(), at), piece(q.view(), at), piece(k.view(), at), piece(v.view(), at),
          piece(y.view(), at), logsumexp.view().slice(at, at + 1), sequences(tape),
          options_for(tape, at, 0), piece(dq.mut(), at), piece(dk.mut(), at), piece(dv.mut(), at));
    auto dx = gradient_sum_.by_rows(
        dev, dy.dtype(), x_shape(q.rows() / pieces()), std::move(onto),
        [&](int at, Range block, View<Dev> to, double beta) {
          for (std::size_t of = 3; of-- > 0; beta = 1)
            projections_[of].input_gradient(
                dev, piece(gradients[of].view(), at).slice(block.first, block.last), at, to, beta);
        });
    for (std::size_t of = 3; of-- > 0;)
      projections_[of].finish_backward(dev, std::move(gradients[of]), dx.mut(), tape);
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
  [[nodiscard]] Shape x_shape(std::int64_t rows) const { return {rows, options_.columns}; }
  [[nodiscard]] int pieces() const { return gradient_sum_.pieces(); }
  template <class AnyView>
  [[nodiscard]] AnyView piece(AnyView all, int at) const {
    return detail::piece(all, pieces(), at);
  }
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
  [[nodiscard]] AttentionOptions options_for(const Tape<Dev>& tape, int piece,
                                             std::int64_t row_stride) const {
    return {.heads = heads_of_piece_,
            .first_head = first_head_ + piece * heads_of_piece_,
            .total_heads = options_.heads,
            .dropout = tape.context().training() ? options_.dropout : 0,
            .random = tape.context().random(use_),
            .row_stride = row_stride};
  }

  SelfAttentionOptions options_;
  std::uint32_t use_;
  int heads_of_piece_ = 0;
  int first_head_ = 0;                    // of this rank
  std::vector<Linear<Dev>> projections_;  // query, key, value
  bool apart_ = false;                    // q, k and v are separate matrices
  ParameterList<Dev> weights_, biases_;   // else, to be seen as one
  GroupSum<Dev> gradient_sum_;
};

}  // namespace dhp
