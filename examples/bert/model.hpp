// BERT (Devlin et al. 2019) with the original shapes, assembled from dhp's layers: embeddings, post-norm blocks,
// pooler, masked-token head with the tied decoder, next-sentence head. Parameter names are Hugging Face's.
#pragma once

#include <dhp/nn/activation.hpp>
#include <dhp/nn/cross_entropy.hpp>
#include <dhp/nn/dropout.hpp>
#include <dhp/nn/feed_forward.hpp>
#include <dhp/nn/layer_norm.hpp>
#include <dhp/nn/residual_layer_norm.hpp>
#include <dhp/nn/self_attention.hpp>

#include "../transformer/parts.hpp"
#include "config.hpp"

#include <numeric>
#include <string>
#include <vector>

namespace examples {

/// Returns BERT's placement on the tensor axis. share_rows: norms and layers between split pairs shard their rows.
[[nodiscard]] inline dhp::Placements bert_placements(bool share_rows = false) {
  dhp::Placements table{
      {"{bert.embeddings.word_embeddings.weight,cls.predictions.bias}", dhp::Placement::words},
      {"*.attention.self.{query,key,value}.*", dhp::Placement::heads},
      {"*.intermediate.dense.*", dhp::Placement::columns},
      {"*.output.dense.weight", dhp::Placement::rows}};
  if (share_rows) table.push_back({"bert.*.LayerNorm.*", dhp::Placement::shares});
  table.push_back({"*", dhp::Placement::replicated});
  return table;
}

/// Sums the embeddings of word, position and segment and normalizes the sum; y [rows, hidden].
template <class Dev>
[[nodiscard]] TokenEmbeddings<Dev> bert_embeddings(dhp::ModelBuilder<Dev>& build,
                                                   const BertConfig& config) {
  std::vector<dhp::Embedding<Dev>> tables;
  const auto add = [&](const char* name, std::int64_t entries, const char* ids) {
    tables.emplace_back(
        build, std::string("bert.embeddings.") + name,
        dhp::EmbeddingOptions{.entries = entries, .columns = config.hidden, .ids = ids});
  };
  add("word_embeddings", config.vocabulary, "token_ids");
  add("position_embeddings", config.positions, "positions");
  add("token_type_embeddings", config.segments, "segments");
  dhp::Sequential<Dev> after;
  after.add("norm",
            dhp::LayerNorm<Dev>(build, "bert.embeddings.LayerNorm", config.hidden, config.epsilon));
  after.add("dropout", dhp::Dropout<Dev>(build, config.dropout));
  return {std::move(tables), std::move(after), 16};
}

/// The first half of a block: norm(x + attention(x)).
template <class Dev>
[[nodiscard]] dhp::ResidualLayerNorm<Dev> bert_attention(dhp::ModelBuilder<Dev>& build,
                                                         const std::string& name,
                                                         const BertConfig& config) {
  dhp::Sequential<Dev> body;
  body.add("self", dhp::SelfAttention<Dev>(build, name + ".attention.self",
                                           {.heads = config.heads,
                                            .columns = config.hidden,
                                            .max_length = config.sequence_length,
                                            .dropout = config.dropout,
                                            .exchange_heads = config.exchange_heads}));
  body.add("output", dhp::Linear<Dev>(build, name + ".attention.output.dense",
                                      {.in = config.hidden, .out = config.hidden}));
  return {build,
          name + ".attention.output.LayerNorm",
          std::move(body),
          {.columns = config.hidden, .dropout = config.dropout, .epsilon = config.epsilon}};
}

/// The second half of a block: norm(x + feed_forward(x)).
template <class Dev>
[[nodiscard]] dhp::ResidualLayerNorm<Dev> bert_feed_forward(dhp::ModelBuilder<Dev>& build,
                                                            const std::string& name,
                                                            const BertConfig& config) {
  dhp::Sequential<Dev> body;
  body.add("pair",
           dhp::FeedForward<Dev>(build, name + ".intermediate.dense", name + ".output.dense",
                                 {.columns = config.hidden, .inner = config.intermediate()}));
  return {build,
          name + ".output.LayerNorm",
          std::move(body),
          {.columns = config.hidden, .dropout = config.dropout, .epsilon = config.epsilon}};
}

/// BERT's two heads for pre-training, and their losses. If ranks shard the rows of x, it gathers them first. Only
/// masked rows are multiplied with the word embedding. Without BertConfig::next_sentence only predict() works.
template <class Dev>
class BertLoss {
 public:
  BertLoss(dhp::ModelBuilder<Dev>& build, const BertConfig& config,
           dhp::ParameterList<Dev> word_table)
      : shares_(build.whole_rows()),
        masked_entropy_(build, config.vocabulary, word_table[0]->spec.placement, 0, true),
        next_entropy_(build, 2) {
    if (config.next_sentence) {
      next_.add("pooler", dhp::Linear<Dev>(build, "bert.pooler.dense",
                                           {.in = config.hidden, .out = config.hidden}));
      next_.add("tanh", dhp::ActivationLayer<Dev>(dhp::Activation::tanh));
      next_.add("next sentence",
                dhp::Linear<Dev>(build, "cls.seq_relationship", {.in = config.hidden, .out = 2}));
    }
    const std::string transform = "cls.predictions.transform.dense";
    dhp::check(build.low_rank().dropout == 0 || build.low_rank().matching(transform).empty(),
               "the adapter of ", transform, " cannot have dropout, as it sees only masked words; ",
               "choose --lora-dropout 0 or other layers for --lora");
    masked_.add("transform",
                dhp::Linear<Dev>(build, transform, {.in = config.hidden, .out = config.hidden}));
    masked_.add("gelu", dhp::gelu<Dev>());
    masked_.add("norm", dhp::LayerNorm<Dev>(build, "cls.predictions.transform.LayerNorm",
                                            config.hidden, config.epsilon));
    masked_.add("decoder", dhp::Linear<Dev>(build, "cls.predictions", std::move(word_table),
                                            {.padded = true}));
  }

  [[nodiscard]] std::vector<std::string> term_names() const { return {"masked_tokens", "samples"}; }

  /// Returns the vocabulary's scores [masked rows, this rank's part and padding] for x [rows, hidden].
  dhp::Tensor<Dev> masked_logits(Dev& dev, const dhp::Tensor<Dev>& x, dhp::Tape<Dev>& tape) {
    return masked_.forward(dev, rows_at(dev, x, tape.batch().at("masked_rows")), tape);
  }
  /// Returns the scores of both answers to "does the second part follow the first?" [samples, 2].
  dhp::Tensor<Dev> next_logits(Dev& dev, const dhp::Tensor<Dev>& x, dhp::Tape<Dev>& tape) {
    return next_.forward(dev, rows_at(dev, x, tape.batch().at("first_rows")), tape);
  }

  void forward(Dev& dev, dhp::Tensor<Dev> x, dhp::Tape<Dev>& tape, dhp::View<Dev> totals) {
    const auto& batch = tape.batch();
    const auto term = [&](int which) {
      return totals.slice(which, which + 1).as({dhp::loss_fields});
    };
    x = shares_.gather(dev, std::move(x), tape);
    tape.push_shape(x.shape());
    masked_entropy_.forward(dev, masked_logits(dev, x, tape), batch.at("masked_labels").view(),
                            tape, term(0));
    next_entropy_.forward(dev, next_logits(dev, x, tape), batch.at("next_labels").view(), tape,
                          term(1));
  }

  /// Returns the scores of the whole vocabulary, [masked rows, vocabulary].
  dhp::Tensor<Dev> predict(Dev& dev, dhp::Tensor<Dev> x, dhp::Tape<Dev>& tape) {
    x = shares_.gather(dev, std::move(x), tape);
    return masked_entropy_.gather_logits(dev, masked_logits(dev, x, tape));
  }

  dhp::Tensor<Dev> backward(Dev& dev, dhp::ConstView<Dev> scales, dhp::Tape<Dev>& tape) {
    const auto& batch = tape.batch();
    auto from_next = next_.backward(
        dev, next_entropy_.backward(dev, batch.at("next_labels").view(), scales.slice(1, 2), tape),
        tape);
    auto from_masked = masked_.backward(
        dev,
        masked_entropy_.backward(dev, batch.at("masked_labels").view(), scales.slice(0, 1), tape),
        tape);
    auto dx = dhp::Tensor<Dev>::zeros(dev, from_next.dtype(), tape.pop_shape());
    scatter_add_rows(dev, from_next.view(), batch.at("first_rows").view(), dx.mut());
    scatter_add_rows(dev, from_masked.view(), batch.at("masked_rows").view(), dx.mut());
    return shares_.take(dev, std::move(dx));
  }

  [[nodiscard]] double flops(const dhp::Shape& in, const dhp::MicroBatch<Dev>& batch) const {
    const auto head_flops = [&](const dhp::Sequential<Dev>& head,
                                const dhp::CrossEntropy<Dev>& entropy, const char* rows) {
      const dhp::Shape chosen{batch.at(rows).count(), in[1]};
      return head.flops(chosen, batch) + entropy.flops(head.output_shape(chosen, batch));
    };
    return head_flops(masked_, masked_entropy_, "masked_rows") +
           head_flops(next_, next_entropy_, "first_rows");
  }
  void parameters(dhp::ParameterList<Dev>& out) const {
    next_.parameters(out);
    masked_.parameters(out);
  }

 private:
  dhp::RowShares<Dev> shares_;  // gathers the rows of x
  dhp::Sequential<Dev> masked_;
  dhp::Sequential<Dev> next_;
  dhp::CrossEntropy<Dev> masked_entropy_;
  dhp::CrossEntropy<Dev> next_entropy_;
};

/// Adds the encoder: embeddings and blocks. A pipeline can cut the model between half blocks. Returns the word
/// embedding's weight, for the tied decoder.
template <class Dev>
dhp::ParameterList<Dev> add_bert_encoder(dhp::ModelBuilder<Dev>& build, const BertConfig& config,
                                         dhp::Model<Dev>& model) {
  dhp::check(config.sequence_length <= config.positions, "bert: --sequence-length ",
             config.sequence_length, " is beyond the ", config.positions,
             " positions of this model");
  build.place(bert_placements(config.share_rows), std::gcd(config.heads, config.intermediate()));
  auto embeddings = bert_embeddings(build, config);
  auto table = embeddings.word_table();
  model.add("embeddings", std::move(embeddings));
  for (int block = 0; block < config.layers; ++block) {
    const auto name = "bert.encoder.layer." + std::to_string(block);
    add_part(model, name + ".attention", bert_attention(build, name, config), config.recompute);
    add_part(model, name + ".feed_forward", bert_feed_forward(build, name, config),
             config.recompute);
  }
  return table;
}

/// Builds the whole model for pre-training.
template <class Dev>
[[nodiscard]] dhp::Model<Dev> bert(dhp::ModelBuilder<Dev>& build, const BertConfig& config) {
  dhp::Model<Dev> model;
  auto table = add_bert_encoder(build, config, model);
  model.loss = BertLoss<Dev>(build, config, std::move(table));
  return model;
}

}  // namespace examples
