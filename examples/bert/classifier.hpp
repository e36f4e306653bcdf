// Classifies sentences, or pairs of them, as Hugging Face's BertForSequenceClassification does.
#pragma once

#include "model.hpp"

#include <string>
#include <utility>
#include <vector>

namespace examples {

/// Pooler and classifier over the first token (Devlin et al. 2019, section 4.1), and the loss of labelled samples.
template <class Dev>
class BertClasses {
 public:
  BertClasses(dhp::ModelBuilder<Dev>& build, const BertConfig& config, std::int64_t classes)
      : shares_(build.whole_rows()), entropy_(build, classes) {
    head_.add("pooler", dhp::Linear<Dev>(build, "bert.pooler.dense",
                                         {.in = config.hidden, .out = config.hidden}));
    head_.add("tanh", dhp::ActivationLayer<Dev>(dhp::Activation::tanh));
    head_.add("dropout", dhp::Dropout<Dev>(build, config.dropout, "sample_numbers"));
    head_.add("classifier",
              dhp::Linear<Dev>(build, "classifier", {.in = config.hidden, .out = classes}));
  }

  [[nodiscard]] std::vector<std::string> term_names() const { return {"samples"}; }

  /// Returns logits [samples, classes] for x [rows, hidden] and the side input "first_rows".
  dhp::Tensor<Dev> predict(Dev& dev, dhp::Tensor<Dev> x, dhp::Tape<Dev>& tape) {
    x = shares_.gather(dev, std::move(x), tape);
    return head_.forward(dev, rows_at(dev, x, tape.batch().at("first_rows")), tape);
  }
  void forward(Dev& dev, dhp::Tensor<Dev> x, dhp::Tape<Dev>& tape, dhp::View<Dev> totals) {
    tape.push_shape({shares_.all(tape, x.shape()[0]), x.columns()});
    entropy_.forward(dev, predict(dev, std::move(x), tape), tape.batch().at("labels").view(), tape,
                     totals.as({dhp::loss_fields}));
  }
  dhp::Tensor<Dev> backward(Dev& dev, dhp::ConstView<Dev> scales, dhp::Tape<Dev>& tape) {
    const auto& batch = tape.batch();
    const auto from_head =
        head_.backward(dev, entropy_.backward(dev, batch.at("labels").view(), scales, tape), tape);
    auto dx = dhp::Tensor<Dev>::zeros(dev, from_head.dtype(), tape.pop_shape());
    scatter_add_rows(dev, from_head.view(), batch.at("first_rows").view(), dx.mut());
    return shares_.take(dev, std::move(dx));
  }

  [[nodiscard]] double flops(const dhp::Shape& in, const dhp::MicroBatch<Dev>& batch) const {
    const dhp::Shape chosen{batch.at("first_rows").count(), in[1]};
    return head_.flops(chosen, batch) + entropy_.flops(head_.output_shape(chosen, batch));
  }
  void parameters(dhp::ParameterList<Dev>& out) const { head_.parameters(out); }

 private:
  dhp::RowShares<Dev> shares_;  // gathers the rows of x
  dhp::Sequential<Dev> head_;
  dhp::CrossEntropy<Dev> entropy_;
};

}  // namespace examples
