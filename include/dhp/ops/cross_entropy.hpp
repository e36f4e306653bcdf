// Softmax cross-entropy in pieces, for logits whose classes may be split over ranks: between the pieces the
// caller all-reduces a maximum, three sums and a rank per row; the logits themselves stay where they are
// (Shoeybi et al. 2019, "Megatron-LM", section 3). The probabilities are never stored.
#pragma once

#include <dhp/tensor/view.hpp>

namespace dhp {

struct CrossEntropyOptions {
  std::int64_t classes = 0;      ///< over all ranks
  std::int64_t first_class = 0;  ///< of the classes that these logits [M, V] hold
  double smoothing = 0;          ///< target = (1 - s) on the label + s / classes on every class
};

// labels are i32 [M]; -1 is ignored; another label outside of [0, classes) is an error.

/// max[m] = largest logit here. -> all-reduce max
template <Device Dev>
void cross_entropy_max(Dev& dev, In<Dev> logits, Out<Dev> max) {
  check(max.count() == logits.rows() && max.dtype() == accumulation_type(logits.dtype()),
        "cross_entropy: the maxima ", max.shape(), " do not fit the logits ", logits.shape());
  cross_entropy_max_on(dev, logits, max);
}

/// sums [3, M]: sum of exp(x - max); x[label] if it is here, else 0; sum of x. -> all-reduce sum
template <Device Dev>
void cross_entropy_sums(Dev& dev, In<Dev> logits, In<Dev> labels, In<Dev> max,
                        const CrossEntropyOptions& options, Out<Dev> sums) {
  check(labels.count() == logits.rows() && max.count() == logits.rows() &&
            sums.count() == 3 * logits.rows(),
        "cross_entropy: labels ", labels.shape(), " or sums ", sums.shape(),
        " do not fit the logits ", logits.shape());
  cross_entropy_sums_on(dev, logits, labels, max, options, sums);
}

/// loss[m] = -sum over classes of target * log softmax; 0 where the label is ignored.
template <Device Dev>
void cross_entropy_loss(Dev& dev, In<Dev> max, In<Dev> sums, In<Dev> labels,
                        const CrossEntropyOptions& options, Out<Dev> loss) {
  check(loss.count() == labels.count() && max.count() == labels.count() &&
            sums.count() == 3 * labels.count(),
        "cross_entropy: labels ", labels.shape(), " do not fit the loss ", loss.shape());
  cross_entropy_loss_on(dev, max, sums, labels, options, loss);
}

/// rank[m], i32: how many classes here have a larger logit than the label, or the same and a smaller number;
/// 0 where ignored. -> all-reduce sum; 0 then means that the label is the prediction.
template <Device Dev>
void cross_entropy_rank(Dev& dev, In<Dev> logits, In<Dev> sums, In<Dev> labels,
                        const CrossEntropyOptions& options, Out<Dev> rank) {
  check(rank.count() == labels.count() && labels.count() == logits.rows() &&
            rank.dtype() == DType::i32,
        "cross_entropy: the ranks ", rank.shape(), " do not fit the logits ", logits.shape());
  cross_entropy_rank_on(dev, logits, sums, labels, options, rank);
}

/// dlogits = scale * (softmax - target), 0 in ignored rows; may be the logits' memory.
template <Device Dev>
void cross_entropy_backward(Dev& dev, In<Dev> logits, In<Dev> max, In<Dev> sums, In<Dev> labels,
                            const CrossEntropyOptions& options, double scale, Out<Dev> dlogits) {
  check(dlogits.count() == logits.count() && labels.count() == logits.rows(),
        "cross_entropy: the gradient ", dlogits.shape(), " does not fit the logits ",
        logits.shape());
  cross_entropy_backward_on(dev, logits, max, sums, labels, options, scale, dlogits);
}

}  // namespace dhp
