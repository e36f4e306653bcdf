// Softmax cross-entropy for classes that may be split over ranks (Shoeybi et al. 2019, "Megatron-LM", section 3).
// Between these functions the caller all-reduces a maximum, three sums and, in evaluation, the label's rank among the
// logits, for each row. Logits are not exchanged, and probabilities are not stored.
#pragma once

#include <dhp/ops/checks.hpp>

#include <algorithm>
#include <cmath>

namespace dhp {

struct CrossEntropyOptions {
  std::int64_t classes = 0;      ///< number of classes over all ranks
  std::int64_t first_class = 0;  ///< class of the first column of these logits [M, V]
  double smoothing = 0;          ///< s: target is (1 - s) on the label + s / classes on each class
  /// Number of the V columns that are classes; the others are padding. -1 means all columns.
  std::int64_t local_classes = -1;
  /// Whether the maxima and the labels' ranks are combined with those in the output, from earlier pieces of the logits.
  bool onto = false;

  [[nodiscard]] std::int64_t classes_of(const Shape& logits) const {
    return local_classes < 0 ? logits.back() : local_classes;
  }
};

// labels i32 [M]: -1 ignores the row. Other labels outside [0, classes) throw Error on a CPU, and give NaN on a GPU.

namespace detail {
/// Throws Error unless the local classes have columns and are in [0, classes), and the smoothing is in [0, 1].
inline void check_class_part(const CrossEntropyOptions& options, std::int64_t columns) {
  check(options.local_classes <= columns, "cross_entropy: logits of ", columns,
        " columns cannot have ", options.local_classes, " classes");
  if (options.local_classes >= 0) columns = options.local_classes;
  check(options.first_class >= 0 && options.first_class + columns <= options.classes,
        "cross_entropy: logits of classes [", options.first_class, ", ",
        options.first_class + columns, ") are not among ", options.classes);
  check(options.smoothing >= 0 && options.smoothing <= 1,
        "cross_entropy: the smoothing must be in [0, 1], got ", options.smoothing);
}
template <Device Dev>
void check_class_rows(const char* what, InView<Dev> view, const Shape& shape, DType type) {
  check(view.count() == shape.count() && view.dtype() == type, "cross_entropy: the ", what, " ",
        view.shape(), " of ", view.dtype(), " are not ", shape, " of ", type);
}
/// Throws Error unless labels [M], maxima [M] and sums [3, M] fit M rows.
template <Device Dev>
void check_label_rows(std::int64_t rows, DType type, InView<Dev> labels, InView<Dev> max,
                      InView<Dev> sums) {
  check_class_rows<Dev>("labels", labels, {rows}, DType::i32);
  check_class_rows<Dev>("maxima", max, {rows}, type);
  check_class_rows<Dev>("sums", sums, {3, rows}, type);
}

/// max [M] = the largest local logit of each row of logits [M, V]. The caller then all-reduces max by maximum.
template <Device Dev>
void cross_entropy_max(Dev& dev, InView<Dev> logits, const CrossEntropyOptions& options,
                       OutView<Dev> max) {
  check_class_part(options, logits.columns());
  check(max.count() == logits.rows() && max.dtype() == accumulation_type(logits.dtype()),
        "cross_entropy: the maxima ", max.shape(), " of ", max.dtype(), " do not fit the logits ",
        logits.shape(), " of ", logits.dtype());
  cross_entropy_max_on(dev, logits, options, max);
}

/// Writes three sums [3, M] from logits x [M, V], labels i32 [M] and max [M]: the sum of exp(x - max); x[label] if the
/// label is local, else 0; and, with smoothing, the sum of x - max, else 0. The caller then all-reduces them by sum.
template <Device Dev>
void cross_entropy_sums(Dev& dev, InView<Dev> logits, InView<Dev> labels, InView<Dev> max,
                        const CrossEntropyOptions& options, OutView<Dev> sums) {
  check_class_part(options, logits.columns());
  check_label_rows<Dev>(logits.rows(), accumulation_type(logits.dtype()), labels, max, sums);
  cross_entropy_sums_on(dev, logits, labels, max, options, sums);
}

/// loss [M] = -sum over classes of target * log softmax, from max [M], sums [3, M], labels i32 [M]; 0 in ignored rows.
template <Device Dev>
void cross_entropy_loss(Dev& dev, InView<Dev> max, InView<Dev> sums, InView<Dev> labels,
                        const CrossEntropyOptions& options, OutView<Dev> loss) {
  check_class_part(options, std::max<std::int64_t>(options.local_classes, 0));
  check_label_rows<Dev>(loss.count(), loss.dtype(), labels, max, sums);
  cross_entropy_loss_on(dev, max, sums, labels, options, loss);
}

/// rank i32 [M] = number of local classes of logits [M, V] whose logit is larger than the label's (from sums [3, M]),
/// or equal at a smaller index; 0 in rows that labels, i32 [M], ignores. The caller then all-reduces by sum; 0 is a
/// correct prediction.
template <Device Dev>
void cross_entropy_rank(Dev& dev, InView<Dev> logits, InView<Dev> sums, InView<Dev> labels,
                        const CrossEntropyOptions& options, OutView<Dev> rank) {
  check_class_part(options, logits.columns());
  const auto rows = logits.rows();
  check_class_rows<Dev>("ranks", rank, {rows}, DType::i32);
  check_class_rows<Dev>("labels", labels, {rows}, DType::i32);
  check_class_rows<Dev>("sums", sums, {3, rows}, accumulation_type(logits.dtype()));
  cross_entropy_rank_on(dev, logits, sums, labels, options, rank);
}

/// totals f64 [4] = {sum of loss [M], number of rows with a label, number of these with rank 0, number of these with
/// rank below 5}. labels i32 [M]. rank is i32 [M], or empty; then the last two totals are 0.
template <Device Dev>
void cross_entropy_totals(Dev& dev, InView<Dev> loss, InView<Dev> labels, InView<Dev> rank,
                          OutView<Dev> totals) {
  check_class_rows<Dev>("labels", labels, {loss.count()}, DType::i32);
  if (!rank.empty()) check_class_rows<Dev>("ranks", rank, {loss.count()}, DType::i32);
  check_class_rows<Dev>("totals", totals, {4}, DType::f64);
  cross_entropy_totals_on(dev, loss, labels, rank, totals);
}

/// dlogits [M, V] = scale * (softmax - target), but 0 in ignored rows and in padding. dlogits may alias logits [M, V].
/// scale f64 [1], max [M], sums [3, M], labels i32 [M].
template <Device Dev>
void cross_entropy_backward(Dev& dev, InView<Dev> logits, InView<Dev> max, InView<Dev> sums,
                            InView<Dev> labels, const CrossEntropyOptions& options,
                            InView<Dev> scale, OutView<Dev> dlogits) {
  check_one("cross_entropy: the scale", scale, DType::f64);
  check_class_part(options, logits.columns());
  check_label_rows<Dev>(logits.rows(), accumulation_type(logits.dtype()), labels, max, sums);
  check_like("cross_entropy: the gradient", dlogits, logits);
  cross_entropy_backward_on(dev, logits, max, sums, labels, options, scale, dlogits);
}

/// Returns the loss of one row that has a label, by the same formula on every device. Subtracts the label's logit from
/// the maximum first, because sums with large logits would lose digits of the loss.
template <class A>
[[nodiscard]] constexpr A cross_entropy_of(A smoothing, A classes, A max, A powers, A wanted,
                                           A below_max) {
  return std::log(powers) + (A(1) - smoothing) * (max - wanted) - smoothing * below_max / classes;
}
}  // namespace detail

}  // namespace dhp
