// SampleEmbeddings ends a model that predicts one vector for each sample: the mean of its tokens' rows, or one of the
// rows. Samples are ragged; the side input "pooling" weights the rows.
#pragma once

#include <dhp/nn/loss.hpp>
#include <dhp/ops/elementwise.hpp>
#include <dhp/ops/gemm.hpp>

namespace dhp {

/// A loss without terms, for models that only predict.
template <class Dev>
class SampleEmbeddings {
 public:
  [[nodiscard]] std::vector<std::string> term_names() const { return {}; }

  /// y [samples, C] = pooling * x, for x [rows, C] and the side input "pooling" [samples, rows] of floats or doubles.
  /// The weight 1/n for each of a sample's n tokens gives their mean; a single 1 selects one token.
  Tensor<Dev> predict(Dev& dev, Tensor<Dev> x, Tape<Dev>& tape) {
    const auto& weights = tape.batch().at("pooling");
    check(weights.shape().rank() == 2 && weights.columns() == x.rows(),
          "sample embeddings: the side input \"pooling\" ", weights.shape(), " does not fit ",
          x.rows(), " rows of tokens");
    Tensor<Dev> rounded(dev, x.dtype(), weights.shape());
    cast(dev, weights.view(), rounded.mut());
    Tensor<Dev> y(dev, x.dtype(), {weights.rows(), x.columns()});
    gemm(dev, rounded.view(), x.view(), y.mut());
    return y;
  }

  void forward(Dev&, Tensor<Dev>, Tape<Dev>&, View<Dev>) { refuse(); }
  Tensor<Dev> backward(Dev&, ConstView<Dev>, Tape<Dev>&) { refuse(); }
  [[nodiscard]] double flops(const Shape& in, const MicroBatch<Dev>& batch) const {
    return 2 * static_cast<double>(batch.at("pooling").count() * in.back());
  }
  void parameters(ParameterList<Dev>&) const {}

 private:
  [[noreturn]] static void refuse() {
    fail("a model that ends with SampleEmbeddings has no loss: it predicts, and is not trained");
  }
};

}  // namespace dhp
