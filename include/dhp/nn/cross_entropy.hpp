// Softmax cross-entropy. Classes may be split over the tensor axis: the ranks exchange a maximum and three sums
// per row, never the logits (Shoeybi et al. 2019, "Megatron-LM", section 3).
#pragma once

#include <dhp/nn/gather_parts.hpp>
#include <dhp/nn/loss.hpp>
#include <dhp/nn/model_builder.hpp>
#include <dhp/ops/cross_entropy.hpp>
#include <dhp/ops/reduce.hpp>

namespace dhp {

/// One term of a loss: logits [M, this rank's classes] against labels i32 [M], -1 = ignored.
template <class Dev>
class CrossEntropy {
 public:
  /// logits: the placement of the weight that makes them; by columns or words, they hold this rank's part_of() the
  /// classes. padded: columns beyond them are ignored.
  CrossEntropy(const ModelBuilder<Dev>& build, std::int64_t classes,
               Placement logits = Placement::replicated, double smoothing = 0, bool padded = false)
      : options_{.classes = classes, .smoothing = smoothing} {
    Range part{0, classes};
    if (logits == Placement::columns || logits == Placement::words) {
      group_ = build.tensor;
      part = detail::tensor_part("the classes of a cross-entropy", classes, group_.size(),
                                 group_.rank());
    }
    options_.first_class = part.first;
    if (padded) options_.local_classes = part.size();
  }

  /// totals f64 [loss_fields]. Smooths labels in training only; counts predictions in evaluation only.
  void forward(Dev& dev, Tensor<Dev> logits, ConstView<Dev> labels, Tape<Dev>& tape,
               View<Dev> totals) {
    const bool training = tape.context().training();
    auto options = options_;
    if (!training) options.smoothing = 0;
    const auto rows = logits.rows();
    const auto accumulation = accumulation_type(logits.dtype());
    Tensor<Dev> max(dev, accumulation, {rows});
    Tensor<Dev> sums(dev, accumulation, {3, rows});
    detail::cross_entropy_max(dev, logits.view(), options, max.mut());
    if (group_.size() > 1) group_.all_reduce(dev, max.mut(), Reduce::max).wait();
    detail::cross_entropy_sums(dev, logits.view(), labels, max.view(), options, sums.mut());
    if (group_.size() > 1) group_.all_reduce(dev, sums.mut()).wait();

    Tensor<Dev> loss(dev, accumulation, {rows});
    detail::cross_entropy_loss(dev, max.view(), sums.view(), labels, options, loss.mut());
    Tensor<Dev> rank;
    if (!training) {
      rank = Tensor<Dev>(dev, DType::i32, {rows});
      detail::cross_entropy_rank(dev, logits.view(), sums.view(), labels, options_, rank.mut());
      if (group_.size() > 1) group_.all_reduce(dev, rank.mut()).wait();
    }
    detail::cross_entropy_totals(dev, loss.view(), labels, rank.view(), totals);
    tape.push(std::move(logits));
    tape.push(std::move(max));
    tape.push(std::move(sums));
  }

  /// The logits of all classes [M, classes] on each rank.
  [[nodiscard]] Tensor<Dev> whole(Dev& dev, Tensor<Dev> logits) {
    if (const auto columns = options_.classes_of(logits.shape()); columns < logits.columns()) {
      Tensor<Dev> bare(dev, logits.dtype(), {logits.rows(), columns});
      copy_columns(dev, logits.view(), 0, bare.mut(), 0, columns);
      logits = std::move(bare);
    }
    if (group_.size() == 1) return logits;
    return gather_parts(dev, group_, logits, options_.classes);
  }

  /// Flops of one forward pass over logits of this shape.
  [[nodiscard]] double flops(const Shape& logits) const {
    return 4 * static_cast<double>(logits.rows() * options_.classes_of(logits));
  }

  /// scale * d(sum of losses) / d(logits); scale f64 [1]
  Tensor<Dev> backward(Dev& dev, ConstView<Dev> labels, ConstView<Dev> scale, Tape<Dev>& tape) {
    const auto sums = tape.pop();
    const auto max = tape.pop();
    auto logits = tape.pop();
    if (!logits.unique()) logits = clone(dev, logits.view());
    detail::cross_entropy_backward(dev, logits.view(), max.view(), sums.view(), labels, options_,
                                   scale, logits.mut());
    return logits;
  }

 private:
  CrossEntropyOptions options_;
  Comm<Dev> group_;
};

/// A classifier's loss: x holds the logits, the side input "labels" the labels. It counts samples.
template <class Dev>
class ClassificationLoss {
 public:
  explicit ClassificationLoss(CrossEntropy<Dev> entropy) : entropy_(std::move(entropy)) {}

  [[nodiscard]] std::vector<std::string> term_names() const { return {"samples"}; }
  void forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape, View<Dev> totals) {
    entropy_.forward(dev, std::move(x), tape.batch().at("labels").view(), tape,
                     totals.as({loss_fields}));
  }
  /// The logits [M, classes]
  Tensor<Dev> predict(Dev& dev, Tensor<Dev> x, Tape<Dev>&) {
    return entropy_.whole(dev, std::move(x));
  }
  Tensor<Dev> backward(Dev& dev, ConstView<Dev> scales, Tape<Dev>& tape) {
    return entropy_.backward(dev, tape.batch().at("labels").view(), scales.slice(0, 1), tape);
  }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>&) const {
    return entropy_.flops(in);
  }
  void parameters(ParameterList<Dev>&) const {}

 private:
  CrossEntropy<Dev> entropy_;
};

}  // namespace dhp
