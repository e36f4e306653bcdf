// Attention on a context axis: keys and values travel around a ring of ranks (Liu et al. 2023, "Ring attention with
// blockwise transformers"). While a rank computes with keys and values, it sends them on and receives the next ones.
#pragma once

#include <dhp/comm/progress.hpp>
#include <dhp/nn/context.hpp>
#include <dhp/ops/elementwise.hpp>

#include <memory>
#include <optional>
#include <utility>

namespace dhp::detail {

/// Sends a tensor to the next rank of a ring while it receives the previous rank's tensor.
template <class Dev>
class RingTransfer : NonCopyable {
 public:
  RingTransfer(Dev& dev, Progress<Dev>& ring, Tensor<Dev> sent)
      : dev_(dev),
        sent_(std::move(sent)),
        coming_(dev, sent_.dtype(), sent_.shape()),
        done_(ring.start(dev, Collective<Dev>::shift(sent_.view(), coming_.mut()))) {}
  ~RingTransfer() {
    try {
      done_.wait();  // the transfer uses this object's memory
    } catch (...) {  // the error reaches the caller of wait()
    }
  }
  [[nodiscard]] Tensor<Dev> wait() {
    done_.wait(dev_);
    return std::move(coming_);
  }

 private:
  Dev& dev_;
  Tensor<Dev> sent_, coming_;
  Event<Dev> done_;
};

/// Attention of this rank's rows to the rows of all ranks. It equals attention_forward() and attention_backward() on
/// whole samples up to rounding: each rank adds the contributions of the keys in another order.
template <class Dev>
class RingAttention {
 public:
  /// ring: the progress helper of the context axis.
  RingAttention(Dev& dev, const Comm<Dev>& context, Progress<Dev>& ring,
                const MicroBatch<Dev>& batch, std::int64_t max_length)
      : dev_(dev),
        rank_(context.rank()),
        ranks_(context.size()),
        ring_(ring),
        rows_(*batch.context) {
    parts_.queries = rows_.of(rank_);
    parts_.row_numbers = batch.at("row_numbers").view();
    parts_.max_length = max_length;
  }

  void forward(ConstView<Dev> q, ConstView<Dev> k, ConstView<Dev> v,
               const AttentionOptions& options, View<Dev> y, View<Dev> logsumexp) {
    WideSum<Dev> sums(dev_, y);
    auto held = both(k, v);
    for (int step = 0; step < ranks_; ++step) {
      const auto next = begin(step, held);
      if constexpr (AttendsToParts<Dev>)
        attend_to_part_forward(dev_, q, half(held.view(), 0), half(held.view(), 1), parts_, options,
                               sums.view, logsumexp);
      if (next) held = next->wait();
    }
    sums.end(dev_, y);
  }

  /// Gradients travel around the ring one step behind their keys and values, then to the rank that owns the keys.
  void backward(ConstView<Dev> dy, ConstView<Dev> q, ConstView<Dev> k, ConstView<Dev> v,
                ConstView<Dev> y, ConstView<Dev> logsumexp, const AttentionOptions& options,
                View<Dev> dq, View<Dev> dk, View<Dev> dv) {
    const auto wide_y = wide_copy(dev_, y);
    if (wide_y) y = wide_y.view();
    WideSum<Dev> sums(dev_, dq);
    auto held = both(k, v);
    std::optional<RingTransfer<Dev>> gradients;
    for (int step = 0; step < ranks_; ++step) {
      const auto next = begin(step, held);
      // Meanwhile the sum of the earlier ranks' gradients arrives.
      Tensor<Dev> own(dev_, accumulation_type(q.dtype()), held.shape());  // [2, most rows, columns]
      if (step > 0) dev_.fill_zero(own.mut().bytes(), own.size_bytes());
      if constexpr (AttendsToParts<Dev>)
        attend_to_part_backward(dev_, dy, q, half(held.view(), 0), half(held.view(), 1), y,
                                logsumexp, parts_, options, sums.view, half(own.mut(), 0),
                                half(own.mut(), 1));
      if (step > 0) add(dev_, own.view(), gradients->wait().view(), own.mut());
      gradients.emplace(dev_, ring_, std::move(own));
      if (next) held = next->wait();
    }
    const auto home = gradients->wait();
    parts_.keys = parts_.queries;
    sums.end(dev_, dq);
    cast(dev_, half(home.view(), 0), dk);
    cast(dev_, half(home.view(), 1), dv);
  }

 private:
  /// Sends on the keys and values of this step; returns null in the last step.
  [[nodiscard]] std::unique_ptr<RingTransfer<Dev>> begin(int step, const Tensor<Dev>& held) {
    parts_.keys = rows_.of((rank_ + ranks_ - step) % ranks_);
    parts_.more = step > 0;
    if (step + 1 == ranks_) return nullptr;
    return std::make_unique<RingTransfer<Dev>>(dev_, ring_, held.share());
  }
  /// Copies k and v into one tensor, [2, rows of the longest rank, columns].
  [[nodiscard]] Tensor<Dev> both(ConstView<Dev> k, ConstView<Dev> v) {
    Tensor<Dev> result(dev_, k.dtype(), {2, rows_.most, k.columns()});
    parts_.keys = parts_.queries;
    cast(dev_, k, half(result.mut(), 0));
    cast(dev_, v, half(result.mut(), 1));
    return result;
  }
  /// Returns the keys (`at` 0) or the values (`at` 1) in a tensor [2, rows, columns], without padding rows.
  template <class AnyView>
  [[nodiscard]] AnyView half(AnyView of, int at) const {
    return of.slice(at, at + 1).as({of.shape()[1], of.shape()[2]}).slice(0, rows_of(parts_.keys));
  }

  Dev& dev_;
  int rank_, ranks_;
  Progress<Dev>& ring_;
  const ContextRows& rows_;
  AttentionParts<Dev> parts_;
};

}  // namespace dhp::detail
