// Multi-head self-attention (Vaswani et al. 2017, section 3.2) without the output projection, which is a separate
// layer. Samples are ragged, and a sample attends only to itself; the side inputs "offsets", "lengths" and
// "row_numbers" describe them (ops/attention.hpp). Decoders add a causal mask, grouped-query heads and rotary positions
// (ops/rotary.hpp) from the side input "positions". If a batch has a cache, evaluation stores keys and values in the
// cache; after the first pass, each pass has one row for each sample, at the sample's position
// (ops/cached_attention.hpp).
#pragma once

#include <dhp/core/append.hpp>
#include <dhp/nn/context.hpp>
#include <dhp/nn/fused_parameters.hpp>
#include <dhp/nn/grouped_attention.hpp>
#include <dhp/nn/linear.hpp>
#include <dhp/nn/ring_attention.hpp>
#include <dhp/ops/attention.hpp>
#include <dhp/ops/cached_attention.hpp>
#include <dhp/ops/rotary.hpp>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace dhp {

struct SelfAttentionOptions {
  int heads = 1;                ///< number of heads of the whole layer
  std::int64_t columns = 0;     ///< columns of the whole layer, heads * head size
  std::int64_t max_length = 0;  ///< length of the longest sample; dropout masks depend on it
  double dropout = 0;
  int key_heads = 0;       ///< number of key heads, a divisor of heads; 0: same as heads
  bool causal = false;     ///< each token sees only itself and earlier tokens
  double rotary_base = 0;  ///< base of rotary positions; 0: none
  bool bias = true;        ///< true: the projections have biases
  /// On a context axis: if true (always on GPUs), ranks exchange rows for heads, else send keys and values around a
  /// ring.
  bool exchange_heads = false;
  std::array<std::string, 3> names{"query", "key", "value"};  ///< names of the projections
};

/// x is [rows, columns]; y is [rows, columns of this rank's heads] or, with tensor groups, [pieces, rows, columns of a
/// group's heads]. The weights "name.query.weight", ... are all placed by (whole) heads, or all replicated.
template <class Dev>
class SelfAttention final : public detail::AddsOnto<Dev, SelfAttention<Dev>> {
 public:
  SelfAttention(ModelBuilder<Dev>& build, const std::string& name, SelfAttentionOptions options)
      : options_(options), use_(build.next_use()), context_(build.context) {
    if (options_.key_heads == 0) options_.key_heads = options_.heads;
    const auto placement = build.placement(concat(name, ".", options_.names[0], ".weight"));
    const bool by_heads = placement == Placement::heads;
    if (by_heads) gradient_sum_ = build.sum_of_pieces(placement, build.row_shares());
    const int parts = by_heads ? build.tensor.size() * gradient_sum_.pieces() : 1;
    check_heads(name, parts);
    unfused_ = gradient_sum_.is_grouped() || options_.key_heads != options_.heads ||
               !options_.bias || std::max(context_.size(), build.context_groups()) > 1;
    const auto key_columns = options_.columns / options_.heads * options_.key_heads;
    for (int which = 0; which < 3; ++which) {
      projections_.emplace_back(build, concat(name, ".", options_.names[detail::as_size(which)]),
                                LinearOptions{.in = options_.columns,
                                              .out = which == 0 ? options_.columns : key_columns,
                                              .bias = options_.bias,
                                              .fused = unfused_ ? 0 : std::max(2 - which, 0)},
                                PlacementDims{.heads = 0});
      build.check_matching_placement(projections_.back().spec(), projections_[0].spec().placement,
                                     projections_[0].spec());
    }
    unfused_ = unfused_ || std::any_of(projections_.begin(), projections_.end(),
                                       [](const auto& linear) { return linear.is_adapted(); });
    if (!unfused_)
      for (const auto& projection : projections_) {
        weights_.push_back(projection.weights()[0]);
        biases_.push_back(projection.biases()[0]);
      }
    heads_of_piece_ = options.heads / parts;
    key_heads_of_piece_ = options_.key_heads / parts;
    exchanges_heads_ =
        context_.size() > 1 && (options.exchange_heads || !detail::AttendsToParts<Dev>);
    is_grouped_ = build.context_groups() > 1;
    if (context_.size() > 1 && !exchanges_heads_ && !is_grouped_) ring_ = build.around_context();
    check(
        !is_grouped_ || detail::AttendsToParts<Dev>, name,
        ": a deterministic run with a context axis works on CPUs only; choose them, or plain sums");
    check(!exchanges_heads_ || key_heads_of_piece_ % context_.size() == 0, name, ": ",
          key_heads_of_piece_, " key heads cannot be exchanged over a context axis of ",
          context_.size(),
          "; choose a divisor of their number, fewer tensor groups or ranks, or on CPUs attention "
          "by a ring");
    first_head_ = by_heads ? heads_of_piece_ * gradient_sum_.pieces() * build.tensor.rank() : 0;
  }

  /// One product computes q, k and v as the columns of one matrix.
  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    if (unfused_) return forward_unfused(dev, std::move(x), tape);
    const auto columns = weights_[0]->spec.local_shape()[0];
    const detail::FusedValues<Dev> weight(dev, weights_), bias(dev, biases_);
    auto all = gradient_sum_.shares().gather(dev, x.share(), tape);
    Tensor<Dev> qkv(dev, x.dtype(), {all.rows(), 3 * columns});
    gemm(dev, detail::as_matrix(all.view()), weight.view(), qkv.mut(), {.transpose_b = true},
         bias.view());
    all = {};
    rotate(dev, first_two(qkv.mut()), 2 * heads_of_piece_, 3 * columns, tape, false);
    tape.push(std::move(x));
    Tensor<Dev> y(dev, qkv.dtype(), {qkv.rows(), columns});
    Tensor<Dev> logsumexp(dev, accumulation_type(qkv.dtype()), {heads_of_piece_, qkv.rows()});
    const auto in = qkv.view();
    attend(dev, third(in, 0), third(in, 1), third(in, 2), 0, 3 * columns, tape, y.mut(),
           logsumexp.mut());
    tape.push(std::move(qkv));
    tape.push(y.share());
    tape.push(std::move(logsumexp));
    return y;
  }

  /// Returns onto + the gradient of x; an empty onto counts as zero.
  Tensor<Dev> backward_onto(Dev& dev, Tensor<Dev> dy, Tensor<Dev> onto, Tape<Dev>& tape) {
    if (unfused_) return backward_unfused(dev, std::move(dy), std::move(onto), tape);
    const Tensor<Dev> logsumexp = tape.pop();  // [heads, rows]
    const Tensor<Dev> y = tape.pop();          // [rows, columns]
    const Tensor<Dev> qkv = tape.pop();        // [rows, 3 columns]
    auto all = gradient_sum_.shares().start_gather(dev, tape.pop(), tape);
    Tensor<Dev> dqkv(dev, qkv.dtype(), qkv.shape());  // [rows, 3 columns]
    const auto in = qkv.view();
    const auto out = dqkv.mut();
    attention_backward(dev, dy.view(), third(in, 0), third(in, 1), third(in, 2), y.view(),
                       logsumexp.view(), sequences(tape), options_for(tape, 0, in.columns()),
                       third(out, 0), third(out, 1), third(out, 2));
    rotate(dev, first_two(out), 2 * heads_of_piece_, in.columns(), tape, true);
    auto sum = gradient_sum_.start_by_rows(
        dev, dy.dtype(), {dy.rows(), options_.columns}, std::move(onto),
        [&](int, Range, View<Dev> to, double beta) {
          gemm(dev, dqkv.view(), detail::FusedValues<Dev>(dev, weights_).view(), to,
               {.beta = beta});
        });
    auto x = std::move(all).wait();
    if (is_trained(weights_) || is_trained(biases_))
      tape.weight_gradient(dev, [weights = weights_, biases = biases_, x = std::move(x),
                                 dqkv = std::move(dqkv)](Dev& device) {
        detail::accumulate_fused(
            device, weights, biases, [&](View<Dev> dw, View<Dev> dbias, double old) {
              detail::linear_gradients(device, dqkv.view(), detail::as_matrix(x.view()), dw, dbias,
                                       old);
            });
      });
    return std::move(sum).wait(dev);
  }

  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>& batch) const {
    return projections_[0].output_shape(in, batch);
  }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>& batch) const {
    const auto length = static_cast<double>(options_.max_length);
    double total = static_cast<double>(output_shape(in, batch).count()) *
                   (options_.causal ? 2 * (length + 1) : 4 * length);
    for (const auto& linear : projections_) total += linear.flops(in, batch);
    return total;
  }
  void parameters(ParameterList<Dev>& out) const {
    for (const auto& linear : projections_) detail::append(out, linear.weights());
    for (const auto& linear : projections_) detail::append(out, linear.biases());
    for (const auto& linear : projections_) linear.adapter_parameters(out);
  }

 private:
  /// Computes q, k and v separately: for LoRA, tensor groups, shared key heads, missing biases or a context axis.
  Tensor<Dev> forward_unfused(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    std::array<Tensor<Dev>, 3> qkv;
    auto all = projections_[0].gathered(dev, x.share(), tape);
    for (std::size_t at = 0; at < 3; ++at)
      qkv[at] = projections_[at].forward_of(dev, all, x.share(), tape);
    all = {};
    for (int at = 0; at < pieces(); ++at) {
      rotate(dev, piece(qkv[0].mut(), at), heads_of_piece_, 0, tape, false);
      rotate(dev, piece(qkv[1].mut(), at), key_heads_of_piece_, 0, tape, false);
    }
    if (exchanges_heads(tape))
      for (auto& part : qkv) part = exchanged(dev, part, tape, true);
    const auto &q = qkv[0], &k = qkv[1], &v = qkv[2];
    Tensor<Dev> y(dev, q.dtype(), q.shape());
    Tensor<Dev> logsumexp(dev, accumulation_type(q.dtype()),
                          {pieces(), heads_of_piece_ / ranks_of_heads(tape), q.rows() / pieces()});
    const auto forward_of = [&](auto attention) {
      for (int at = 0; at < pieces(); ++at)
        attention.forward(piece(q.view(), at), piece(k.view(), at), piece(v.view(), at),
                          options_for(tape, at, 0), piece(y.mut(), at),
                          logsumexp.mut().slice(at, at + 1));
    };
    if (is_grouped(tape)) forward_of(grouped(dev, tape));
    else if (is_ring(tape)) forward_of(ring(dev, tape));
    else
      for (int at = 0; at < pieces(); ++at)
        attend(dev, piece(q.view(), at), piece(k.view(), at), piece(v.view(), at), at, 0, tape,
               piece(y.mut(), at), logsumexp.mut().slice(at, at + 1));
    for (auto& part : qkv) tape.push(std::move(part));
    tape.push(y.share());
    tape.push(std::move(logsumexp));
    if (exchanges_heads(tape)) return exchanged(dev, y, tape, false);
    return y;
  }
  Tensor<Dev> backward_unfused(Dev& dev, Tensor<Dev> dy, Tensor<Dev> onto, Tape<Dev>& tape) {
    const Tensor<Dev> logsumexp = tape.pop();  // [pieces, heads, rows]
    const Tensor<Dev> y = tape.pop();          // the shape of q
    if (exchanges_heads(tape)) dy = exchanged(dev, dy, tape, true);
    std::array<Tensor<Dev>, 3> qkv, gradients;
    for (std::size_t at = 3; at-- > 0;) {
      qkv[at] = tape.pop();
      gradients[at] = Tensor<Dev>(dev, dy.dtype(), qkv[at].shape());
    }
    const auto &q = qkv[0], &k = qkv[1], &v = qkv[2];
    auto &dq = gradients[0], &dk = gradients[1], &dv = gradients[2];
    const auto backward_of = [&](auto of_piece) {
      for (int at = 0; at < pieces(); ++at)
        of_piece(piece(dy.view(), at), piece(q.view(), at), piece(k.view(), at),
                 piece(v.view(), at), piece(y.view(), at), logsumexp.view().slice(at, at + 1),
                 options_for(tape, at, 0), piece(dq.mut(), at), piece(dk.mut(), at),
                 piece(dv.mut(), at));
    };
    if (is_grouped(tape))
      backward_of([&](auto... parts) { grouped(dev, tape).backward(parts...); });
    else if (is_ring(tape)) backward_of([&](auto... parts) { ring(dev, tape).backward(parts...); });
    else
      backward_of([&](auto of_dy, auto of_q, auto of_k, auto of_v, auto of_y, auto statistics,
                      const auto& options, auto... outputs) {
        attention_backward(dev, of_dy, of_q, of_k, of_v, of_y, statistics, sequences(tape), options,
                           outputs...);
      });
    if (exchanges_heads(tape))
      for (auto& part : gradients) part = exchanged(dev, part, tape, false);
    for (int at = 0; at < pieces(); ++at) {
      rotate(dev, piece(dq.mut(), at), heads_of_piece_, 0, tape, true);
      rotate(dev, piece(dk.mut(), at), key_heads_of_piece_, 0, tape, true);
    }
    return detail::LinearParts<Dev>::backward_of_all(dev, projections_.data(), gradients.data(),
                                                     projections_.size(), std::move(onto), tape);
  }

  /// Attention of one piece's q, k and v. In evaluation with a cache, cached keys and values come before k and v.
  void attend(Dev& dev, ConstView<Dev> q, ConstView<Dev> k, ConstView<Dev> v, int piece,
              std::int64_t row_stride, const Tape<Dev>& tape, View<Dev> y,
              View<Dev> logsumexp) const {
    const auto options = options_for(tape, piece, row_stride);
    const auto all = sequences(tape);
    const auto& batch = tape.batch();
    if (!batch.cache || tape.context().training())
      return attention_forward(dev, q, k, v, all, options, y, logsumexp);
    const auto positions = batch.at("positions").view();
    auto& cache = batch.cache->attention[{reinterpret_cast<std::uintptr_t>(this), piece}];
    const bool begins = cache.empty();
    if (begins)
      cache =
          Tensor<Dev>(dev, k.dtype(), {2, all.lengths.count(), batch.cache->capacity, k.columns()});
    detail::append_to_cache(dev, k, v, all.offsets, positions, row_stride, cache.mut());
    if (begins) attention_forward(dev, q, k, v, all, options, y, logsumexp);
    else detail::attention_step(dev, q, cache.view(), positions, options, y);
  }
  // Prediction batches hold whole samples and have no context.
  [[nodiscard]] bool is_grouped(const Tape<Dev>& tape) const {
    return is_grouped_ && tape.batch().context;
  }
  [[nodiscard]] bool is_ring(const Tape<Dev>& tape) const { return ring_ && tape.batch().context; }
  [[nodiscard]] bool exchanges_heads(const Tape<Dev>& tape) const {
    return exchanges_heads_ && tape.batch().context;
  }
  [[nodiscard]] detail::GroupedAttention<Dev> grouped(Dev& dev, const Tape<Dev>& tape) {
    return {dev, exchanges_heads_ ? alone_ : context_, tape.batch(), options_.max_length};
  }
  [[nodiscard]] detail::RingAttention<Dev> ring(Dev& dev, const Tape<Dev>& tape) {
    return {dev, context_, *ring_, tape.batch(), options_.max_length};
  }
  /// Exchanges rows for heads, or heads for rows, in all pieces.
  [[nodiscard]] Tensor<Dev> exchanged(Dev& dev, const Tensor<Dev>& all, const Tape<Dev>& tape,
                                      bool to_heads) {
    detail::HeadExchange<Dev> exchange(dev, context_, tape.batch());
    Tensor<Dev> result;  // [pieces, rows, columns]
    for (int at = 0; at < pieces(); ++at) {
      const auto of = piece(all.view(), at);
      auto part = to_heads ? exchange.to_heads(of) : exchange.to_rows(of);
      if (pieces() == 1) return part;
      if (at == 0)
        result = Tensor<Dev>(dev, part.dtype(), detail::shape_of_pieces(pieces(), part.shape()));
      detail::copy(dev, part, piece(result.mut(), at));
    }
    return result;
  }

  /// Rotates queries or keys by their positions; with `inverse`, rotates gradients back.
  void rotate(Dev& dev, View<Dev> x, int heads, std::int64_t row_stride, const Tape<Dev>& tape,
              bool inverse) const {
    if (options_.rotary_base != 0)
      detail::rotary(dev, x, tape.batch().at("positions").view(),
                     {.heads = heads,
                      .base = options_.rotary_base,
                      .inverse = inverse,
                      .row_stride = row_stride});
  }

  void check_heads(const std::string& name, int parts) const {
    const int heads = options_.heads, key_heads = options_.key_heads;
    check(heads >= 1 && options_.columns % heads == 0, name, ": ", options_.columns,
          " columns cannot be divided into ", heads, " heads");
    check(options_.rotary_base == 0 || options_.columns / heads % 2 == 0, name,
          ": rotary positions turn pairs of columns, and a head has ", options_.columns / heads,
          "; choose an even number");
    check(key_heads >= 1 && heads % key_heads == 0, name, ": ", heads,
          " heads cannot share the keys and values of ", key_heads,
          " key heads; choose a divisor of the number of heads");
    for (const auto& [count, what] : {std::pair(heads, "heads"), {key_heads, "key heads"}})
      check(count % parts == 0, name, ", by heads: ", count, " ", what,
            " cannot be split over a tensor axis of ", parts,
            "; choose the tensor axis among the divisors of the number of ", what);
  }
  [[nodiscard]] int pieces() const { return gradient_sum_.pieces(); }
  [[nodiscard]] int ranks_of_heads(const Tape<Dev>& tape) const {
    return exchanges_heads(tape) ? context_.size() : 1;
  }
  template <class AnyView>
  [[nodiscard]] AnyView piece(AnyView all, int at) const {
    return detail::piece(all, pieces(), at);
  }
  /// Returns the columns of q, k or v; their rows are row_stride apart.
  template <class AnyView>
  [[nodiscard]] AnyView third(AnyView of, int which) const {
    const auto columns = of.columns() / 3;
    return {of.bytes() + detail::as_size(which * columns) * size_of(of.dtype()),
            of.dtype(),
            {of.rows(), columns}};
  }
  [[nodiscard]] static View<Dev> first_two(View<Dev> of) {
    return {of.bytes(), of.dtype(), {of.rows(), of.columns() / 3 * 2}};
  }
  [[nodiscard]] Sequences<Dev> sequences(const Tape<Dev>& tape) const {
    const auto& batch = tape.batch();
    const auto& numbers = batch.at(exchanges_heads(tape) ? "all_row_numbers" : "row_numbers");
    return {batch.at("offsets").view(), batch.at("lengths").view(), numbers.view(),
            options_.max_length};
  }
  [[nodiscard]] AttentionOptions options_for(const Tape<Dev>& tape, int piece,
                                             std::int64_t row_stride) const {
    const int heads = heads_of_piece_ / ranks_of_heads(tape);
    return {.heads = heads,
            .first_head = first_head_ + piece * heads_of_piece_ +
                          (exchanges_heads(tape) ? context_.rank() * heads : 0),
            .total_heads = options_.heads,
            .key_heads = key_heads_of_piece_ / ranks_of_heads(tape),
            .causal = options_.causal,
            .dropout = tape.context().training() ? options_.dropout : 0,
            .random = tape.context().random(use_),
            .row_stride = row_stride};
  }

  SelfAttentionOptions options_;
  std::uint32_t use_;
  Comm<Dev> context_, alone_;
  std::shared_ptr<Progress<Dev>> ring_;  // null unless keys and values travel on it
  bool exchanges_heads_ = false;
  bool is_grouped_ = false;  // all layouts have the same groups of rows
  int heads_of_piece_ = 0, key_heads_of_piece_ = 0;
  int first_head_ = 0;                                 // this rank's first head
  std::vector<detail::LinearParts<Dev>> projections_;  // query, key, value
  bool unfused_ = false;                               // q, k and v are separate matrices
  ParameterList<Dev> weights_, biases_;                // for one product unless unfused_
  GroupSum<Dev> gradient_sum_;
};

}  // namespace dhp
