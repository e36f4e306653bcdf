// BERT's encoder with an end that predicts: a vector for each sentence, scores of classes, or scores of hidden words.
#pragma once

#include <dhp/nn/sample_embeddings.hpp>

#include "model.hpp"

#include <string>
#include <utility>
#include <vector>

namespace examples {

/// What a model ends with.
enum class BertHead { none, masked_words, classes };

struct PublishedBert {
  BertConfig config{};
  BertHead head = BertHead::none;
  std::vector<std::string> labels{};  ///< of the classes
};

/// Hugging Face's BertForSequenceClassification: pooler and classifier over the first token. It predicts, and has no loss.
template <class Dev>
class BertClasses {
 public:
  BertClasses(dhp::ModelBuilder<Dev>& build, const BertConfig& config, std::int64_t classes) {
    head_.add("pooler", dhp::Linear<Dev>(build, "bert.pooler.dense",
                                         {.in = config.hidden, .out = config.hidden}));
    head_.add("tanh", dhp::ActivationLayer<Dev>(dhp::Activation::tanh));
    head_.add("classifier",
              dhp::Linear<Dev>(build, "classifier", {.in = config.hidden, .out = classes}));
  }

  [[nodiscard]] std::vector<std::string> term_names() const { return {}; }
  /// Logits [samples, classes] for x [rows, hidden] and the side input "first_rows".
  dhp::Tensor<Dev> predict(Dev& dev, dhp::Tensor<Dev> x, dhp::Tape<Dev>& tape) {
    const auto& rows = tape.batch().at("first_rows");
    dhp::Tensor<Dev> first(dev, x.dtype(), {rows.count(), x.columns()});
    gather_rows(dev, x.view(), rows.view(), first.mut());
    return head_.forward(dev, std::move(first), tape);
  }
  void forward(Dev&, dhp::Tensor<Dev>, dhp::Tape<Dev>&, dhp::View<Dev>) { refuse(); }
  dhp::Tensor<Dev> backward(Dev&, dhp::ConstView<Dev>, dhp::Tape<Dev>&) { refuse(); }
  [[nodiscard]] double flops(const dhp::Shape& in, const dhp::MicroBatch<Dev>& batch) const {
    return head_.flops({batch.at("first_rows").count(), in[1]}, batch);
  }
  void parameters(dhp::ParameterList<Dev>& out) const { head_.parameters(out); }

 private:
  [[noreturn]] static void refuse() { dhp::fail("this BERT predicts classes, and is not trained"); }
  dhp::Sequential<Dev> head_;
};

/// head: what is asked for, which need not be all that was published.
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
