// BERT's encoder with a head for prediction: a vector for each sentence, scores of classes, or scores of masked words.
#pragma once

#include <dhp/nn/sample_embeddings.hpp>

#include "model.hpp"

#include <string>
#include <utility>
#include <vector>

namespace examples {

/// Pooler and classifier over the first token (Devlin et al. 2019, section 4.1), and the loss of labeled samples, as
/// in Hugging Face's BertForSequenceClassification.
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

/// Builds the encoder with `head`, which need not be the head of the published model.
template <class Dev>
[[nodiscard]] dhp::Model<Dev> bert_with(dhp::ModelBuilder<Dev>& build, const PublishedBert& bert,
                                        BertHead head) {
  if (head == BertHead::masked_words) return examples::bert(build, bert.config);
  dhp::Model<Dev> model;
  (void)add_bert_encoder(build, bert.config, model);
  if (head == BertHead::none) model.loss = dhp::SampleEmbeddings<Dev>();
  else
    model.loss =
        BertClasses<Dev>(build, bert.config, static_cast<std::int64_t>(bert.labels.size()));
  return model;
}

}  // namespace examples
