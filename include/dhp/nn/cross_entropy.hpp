// CrossEntropy: softmax cross-entropy. If classes are split over the tensor axis, ranks exchange one maximum and three
// sums for each row, never the logits (Shoeybi et al. 2019, "Megatron-LM", section 3).
#pragma once

#include <dhp/nn/gather_parts.hpp>
#include <dhp/nn/loss.hpp>
#include <dhp/nn/model_builder.hpp>
#include <dhp/ops/cross_entropy.hpp>
#include <dhp/ops/reduce.hpp>

#include <vector>

namespace dhp {

/// One term of a loss: compares logits [M, this rank's classes] with labels i32 [M]; the label -1 is ignored. With
/// tensor groups, the logits are pieces [pieces, M, classes of the widest piece].
template <class Dev>
class CrossEntropy {
 public:
  /// logits: the placement of the weight that computes them; if it is `columns` or `words`, each rank has the logits of
  /// its part_of() the classes. padded: the logits may have surplus columns, which are ignored.
  CrossEntropy(const ModelBuilder<Dev>& build, std::int64_t classes,
               Placement logits = Placement::replicated, double smoothing = 0,
               bool padded = false) {
    const bool split = logits == Placement::columns || logits == Placement::words;
    if (split) {
      group_ = build.tensor;
      sum_ = build.sum_of_pieces(logits);
    }
    for (int at = 0; at < sum_.pieces(); ++at) {
      const auto part =
          detail::tensor_part("the classes of a cross-entropy", classes,
                              group_.size() * sum_.pieces(), group_.rank() * sum_.pieces() + at);
      pieces_.push_back(
          {.classes = classes, .first_class = part.first, .smoothing = smoothing, .onto = at > 0});
      if (padded || sum_.is_grouped()) pieces_.back().local_classes = part.size();
    }
    const int parts = group_.size() * sum_.pieces();
    if (!padded) columns_ = part_of(classes, parts, sum_.is_grouped() ? 0 : group_.rank()).size();
  }

  /// Writes totals, f64 [loss_fields]. Only training smooths labels; only evaluation counts correct predictions.
  void forward(Dev& dev, Tensor<Dev> logits, ConstView<Dev> labels, Tape<Dev>& tape,
               View<Dev> totals) {
    check(columns_ < 0 || logits.columns() == columns_, "cross_entropy: logits ", logits.shape(),
          " are not of this rank's ", columns_, " of ", pieces_[0].classes, " classes; give their ",
          "layer as many outputs as there are classes, and the loss the placement of its weight");
    const bool training = tape.context().training();
    auto pieces = pieces_;
    for (auto& options : pieces)
      if (!training) options.smoothing = 0;
    const auto rows = piece(logits.view(), 0).rows();
    const auto accumulation = accumulation_type(logits.dtype());
    const auto of = [&](int at) { return pieces[detail::as_size(at)]; };
    Tensor<Dev> max(dev, accumulation, {rows});
    for (int at = 0; at < count(); ++at)
      detail::cross_entropy_max(dev, piece(logits.view(), at), of(at), max.mut());
    if (group_.size() > 1) group_.all_reduce(dev, max.mut(), Reduce::max).wait();
    auto sums = sum_(dev, accumulation, {3, rows}, {}, [&](int at, View<Dev> to, double) {
      detail::cross_entropy_sums(dev, piece(logits.view(), at), labels, max.view(), of(at), to);
    });

    Tensor<Dev> loss(dev, accumulation, {rows});
    detail::cross_entropy_loss(dev, max.view(), sums.view(), labels, of(0), loss.mut());
    Tensor<Dev> rank;  // [rows]; empty in training
    if (!training) {
      rank = Tensor<Dev>(dev, DType::i32, {rows});
      for (int at = 0; at < count(); ++at)
        detail::cross_entropy_rank(dev, piece(logits.view(), at), sums.view(), labels, of(at),
                                   rank.mut());
      if (group_.size() > 1) group_.all_reduce(dev, rank.mut()).wait();
    }
    if (tape.row_groups() == 0)
      detail::cross_entropy_totals(dev, loss.view(), labels, rank.view(), totals);
    else total_of_groups(dev, loss.view(), labels, rank.view(), tape.row_groups(), totals);
    tape.push(std::move(logits));
    tape.push(std::move(max));
    tape.push(std::move(sums));
  }

  /// Gathers the logits of all classes [M, classes] on each rank.
  [[nodiscard]] Tensor<Dev> gather_logits(Dev& dev, Tensor<Dev> logits) {
    const auto classes = pieces_[0].classes;
    if (group_.size() * count() > 1) return gather_parts(dev, group_, logits, classes, count());
    if (logits.columns() == classes) return logits;
    Tensor<Dev> bare(dev, logits.dtype(), {logits.rows(), classes});
    copy_columns(dev, logits.view(), 0, bare.mut(), 0, classes);
    return bare;
  }

  [[nodiscard]] double flops(const Shape& logits) const {
    const auto shape = detail::shape_of_piece(count(), logits);
    double total = 0;
    for (const auto& options : pieces_)
      total += 4 * static_cast<double>(shape.rows() * options.classes_of(shape));
    return total;
  }

  /// Returns scale * d(sum of losses) / d(logits); scale is f64 [1].
  Tensor<Dev> backward(Dev& dev, ConstView<Dev> labels, ConstView<Dev> scale, Tape<Dev>& tape) {
    const auto sums = tape.pop();  // [3, rows]
    const auto max = tape.pop();   // [rows]
    auto logits = tape.pop();
    if (!logits.unique()) logits = clone(dev, logits.view());
    for (int at = 0; at < count(); ++at) {
      const auto of = piece(logits.mut(), at);
      detail::cross_entropy_backward(dev, of, max.view(), sums.view(), labels,
                                     pieces_[detail::as_size(at)], scale, of);
    }
    return logits;
  }

 private:
  [[nodiscard]] int count() const { return static_cast<int>(pieces_.size()); }
  /// Sums each group and rounds this sum to a multiple of 2^-32. Sums below 2^19 then add up exactly, in any order.
  static void total_of_groups(Dev& dev, ConstView<Dev> loss, ConstView<Dev> labels,
                              ConstView<Dev> rank, int groups, View<Dev> totals) {
    const std::vector<double> shift(loss_fields, 0x1.8p20), back(loss_fields, -0x1.8p20);
    const auto up = Tensor<Dev>::from_host(dev, totals.shape(), shift);
    const auto down = Tensor<Dev>::from_host(dev, totals.shape(), back);
    dev.fill_zero(totals.bytes(), totals.size_bytes());
    Tensor<Dev> of_group(dev, totals.dtype(), totals.shape());  // [loss_fields]
    detail::for_row_groups(groups, labels.count(), [&](Range part) {
      const auto some = [&](ConstView<Dev> all) { return all.empty() ? all : all.slice(part); };
      detail::cross_entropy_totals(dev, some(loss), some(labels), some(rank), of_group.mut());
      for (const auto* each : {&up, &down}) add(dev, of_group.view(), each->view(), of_group.mut());
      add(dev, totals, of_group.view(), totals);
    });
  }
  template <class AnyView>
  [[nodiscard]] AnyView piece(AnyView all, int at) const {
    return detail::piece(all, count(), at);
  }

  std::vector<CrossEntropyOptions> pieces_;  // this rank's pieces
  std::int64_t columns_ = -1;                // of the logits; -1: they may have surplus ones
  Comm<Dev> group_;
  GroupSum<Dev> sum_;
};

/// A classifier's loss: x holds the logits, and the side input "labels" holds the labels. The term counts samples.
template <class Dev>
class ClassificationLoss {
 public:
  explicit ClassificationLoss(CrossEntropy<Dev> entropy) : entropy_(std::move(entropy)) {}

  [[nodiscard]] std::vector<std::string> term_names() const { return {"samples"}; }
  void forward(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape, View<Dev> totals) {
    entropy_.forward(dev, std::move(x), tape.batch().at("labels").view(), tape,
                     totals.as({loss_fields}));
  }
  /// Returns the logits [M, classes].
  Tensor<Dev> predict(Dev& dev, Tensor<Dev> x, Tape<Dev>&) {
    return entropy_.gather_logits(dev, std::move(x));
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
