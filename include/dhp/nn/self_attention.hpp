// Multi-head self-attention (Vaswani et al. 2017, section 3.2) without the output projection, which is another layer.
// Samples are ragged and attend only to themselves: side inputs "offsets", "lengths", "row_numbers"
// (ops/attention.hpp).
#pragma once

#include <dhp/nn/linear.hpp>
#include <dhp/ops/attention.hpp>

namespace dhp {

struct SelfAttentionOptions {
  int heads = 1;                ///< of the whole layer
  std::int64_t columns = 0;     ///< of the whole layer; the head size is columns / heads
  std::int64_t max_length = 0;  ///< longest sample: numbers the dropped probabilities
  double dropout = 0;
};

/// x [rows, columns], y [rows, columns of this rank's heads]; weights "name.query.weight", ... With a tensor axis,
/// put it into ColumnParallel, which sums the gradient of x.
template <class Dev>
class SelfAttention {
 public:
  SelfAttention(ModelBuilder<Dev>& build, const std::string& name, SelfAttentionOptions options)
      : options_(checked(options, build.tensor.size())),
        use_(build.next_use()),
        query_(projection(build, name + ".query")),
        key_(projection(build, name + ".key")),
        value_(projection(build, name + ".value")) {
    local_heads_ = options.heads / build.tensor.size();
    first_head_ = local_heads_ * build.tensor.rank();
  }

  Tensor<Dev> forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    Tensor<Dev> q = query_.forward(dev, x.share(), tape);
    Tensor<Dev> k = key_.forward(dev, x.share(), tape);
    Tensor<Dev> v = value_.forward(dev, std::move(x), tape);
    Tensor<Dev> y(dev, q.dtype(), q.shape());
    Tensor<Dev> logsumexp(dev, accumulation_type(q.dtype()), {local_heads_, q.rows()});
    attention_forward(dev, q.view(), k.view(), v.view(), sequences(tape), options_for(tape),
                      y.mut(), logsumexp.mut());
    tape.push(std::move(q));
    tape.push(std::move(k));
    tape.push(std::move(v));
    tape.push(y.share());
    tape.push(std::move(logsumexp));
    return y;
  }

  Tensor<Dev> backward(Dev& dev, Tensor<Dev> dy, Tape<Dev>& tape) {
    Tensor<Dev> dx(dev, dy.dtype(), {dy.rows(), options_.columns});
    return backward_into(dev, std::move(dy), std::move(dx), 0, tape);
  }
  Tensor<Dev> backward_onto(Dev& dev, Tensor<Dev> dy, Tensor<Dev> onto, Tape<Dev>& tape) {
    return backward_into(dev, std::move(dy), writable(dev, std::move(onto)), 1, tape);
  }

  [[nodiscard]] Shape output_shape(const Shape& in, const MicroBatch<Dev>& batch) const {
    return value_.output_shape(in, batch);
  }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>& batch) const {
    const double local = static_cast<double>(output_shape(in, batch).count());
    return 3 * query_.flops(in, batch) + 4 * local * static_cast<double>(options_.max_length);
  }
  void parameters(ParameterList<Dev>& out) const {
    query_.parameters(out);
    key_.parameters(out);
    value_.parameters(out);
  }

 private:
  /// beta dx + the gradient of x.
  Tensor<Dev> backward_into(Dev& dev, Tensor<Dev> dy, Tensor<Dev> dx, double beta,
                            Tape<Dev>& tape) {
    const Tensor<Dev> logsumexp = tape.pop();
    const Tensor<Dev> y = tape.pop();
    const Tensor<Dev> v = tape.pop();
    const Tensor<Dev> k = tape.pop();
    const Tensor<Dev> q = tape.pop();
    Tensor<Dev> dq(dev, q.dtype(), q.shape());
    Tensor<Dev> dk(dev, q.dtype(), q.shape());
    Tensor<Dev> dv(dev, q.dtype(), q.shape());
    attention_backward(dev, dy.view(), q.view(), k.view(), v.view(), y.view(), logsumexp.view(),
                       sequences(tape), options_for(tape), dq.mut(), dk.mut(), dv.mut());
    value_.backward_into(dev, std::move(dv), dx.mut(), beta, tape);
    key_.backward_into(dev, std::move(dk), dx.mut(), 1, tape);
    query_.backward_into(dev, std::move(dq), dx.mut(), 1, tape);
    return dx;
  }
  [[nodiscard]] static SelfAttentionOptions checked(const SelfAttentionOptions& options,
                                                    int parts) {
    check(options.heads >= 1 && options.columns % options.heads == 0,
          "attention: ", options.columns, " columns cannot be divided into ", options.heads,
          " heads");
    check(options.heads % parts == 0, "attention: ", options.heads,
          " heads cannot be split over a tensor axis of ", parts,
          "; choose the tensor axis among the divisors of the number of heads");
    return options;
  }
  [[nodiscard]] Linear<Dev> projection(ModelBuilder<Dev>& build, const std::string& name) const {
    return Linear<Dev>(build, name, {.in = options_.columns, .out = options_.columns},
                       Split::outputs);
  }
  [[nodiscard]] Sequences<Dev> sequences(const Tape<Dev>& tape) const {
    const auto& batch = tape.batch();
    return {batch.at("offsets").view(), batch.at("lengths").view(), batch.at("row_numbers").view(),
            options_.max_length};
  }
  [[nodiscard]] AttentionOptions options_for(const Tape<Dev>& tape) const {
    return {.heads = local_heads_,
            .first_head = first_head_,
            .total_heads = options_.heads,
            .dropout = tape.context().training() ? options_.dropout : 0,
            .random = tape.context().random(use_)};
  }

  SelfAttentionOptions options_;
  std::uint32_t use_;
  int local_heads_ = 0;
  int first_head_ = 0;
  Linear<Dev> query_, key_, value_;
};

}  // namespace dhp
