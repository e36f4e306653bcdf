// BERT's encoder with a head for prediction: a vector for each sentence, scores of classes, or scores of masked words.
#pragma once

#include <dhp/nn/sample_embeddings.hpp>

#include "classifier.hpp"

namespace examples {

/// Builds the encoder with the head that is asked for, which may be less than what was published.
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
