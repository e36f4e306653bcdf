// BERT as an ONNX graph, layer by layer as in bert/model.hpp and bert/encoder.hpp. dhp packs samples; the graph pads
// them, and a mask excludes the padding.
#pragma once

#include "../bert/encoder.hpp"
#include "../bert/published.hpp"
#include "layers.hpp"

#include <string>

namespace examples {

class OnnxBert : public OnnxLayers {
 public:
  /// Keeps references to its arguments.
  OnnxBert(const OnnxWeights& weights, const PublishedBert& bert)
      : OnnxLayers("bert", weights), config_(bert.config) {}

  /// Builds the whole model with the outputs of this head.
  void build(BertHead head, std::size_t classes, const SentencePooling& pooling) {
    const Extents rows{"batch", "sequence"};
    const auto ids = id_input("input_ids", rows);
    const auto mask = id_input("attention_mask", rows);
    const auto segments = id_input("token_type_ids", rows);
    // 1 or 0, by Where instead of a cast to float: tools that convert a graph to fp16 would leave the cast at fp32.
    const auto counts = node("Greater", {mask, id(0)});
    const auto counted = node("Where", {counts, scalar(1), scalar(0)});
    const auto hidden = encoder(embeddings(ids, segments), attention_bias(counted));
    if (head == BertHead::none) {
      output(hidden, "last_hidden_state", {"batch", "sequence", config_.hidden});
      output(sentence(hidden, counted, pooling), "sentence_embedding", {"batch", config_.hidden});
    } else if (head == BertHead::classes) {
      output(linear("classifier", pooler(hidden)), "logits",
             {"batch", static_cast<std::int64_t>(classes)});
    } else {
      output(masked_words(hidden), "prediction_logits", {"batch", "sequence", config_.vocabulary});
      if (config_.next_sentence)
        output(linear("cls.seq_relationship", pooler(hidden)), "seq_relationship_logits",
               {"batch", std::int64_t{2}});
    }
  }

 private:
  /// Returns [batch, sequence, hidden].
  Value embeddings(const Value& ids, const Value& segments) {
    const std::string name = "bert.embeddings.";
    const auto length = node("Shape", {ids}, {{"start", std::int64_t{1}}});
    const auto positions = node("Slice", {weights(name + "position_embeddings.weight"),
                                          integers({0}), length, integers({0})});
    const auto words = embedding(name + "word_embeddings", ids);
    const auto placed = add(words, positions);
    const auto all = add(placed, embedding(name + "token_type_embeddings", segments));
    return layer_norm(name + "LayerNorm", all, config_.epsilon);
  }

  /// Returns [batch, 1, 1, sequence]: 0 for a token; for padding a number by which the softmax is 0 in fp32 and fp16.
  Value attention_bias(const Value& counted) {
    const auto padding = node("Sub", {scalar(1), counted});
    const auto bias = node("Mul", {padding, scalar(-10000)});
    return node("Unsqueeze", {bias, integers({1, 2})});
  }

  Value encoder(Value x, const Value& bias) {
    for (int block = 0; block < config_.layers; ++block) {
      const auto name = dhp::concat("bert.encoder.layer.", block);
      const auto mixed = self_attention(name + ".attention.self", x, bias,
                                        {.heads = config_.heads, .columns = config_.hidden});
      const auto attended = linear(name + ".attention.output.dense", mixed);
      x = layer_norm(name + ".attention.output.LayerNorm", add(x, attended), config_.epsilon);
      const auto inner = gelu(linear(name + ".intermediate.dense", x));
      x = layer_norm(name + ".output.LayerNorm", add(x, linear(name + ".output.dense", inner)),
                     config_.epsilon);
    }
    return x;
  }

  /// Returns the first token's row, [batch, hidden].
  Value first(const Value& x) { return node("Gather", {x, id(0)}, {{"axis", std::int64_t{1}}}); }
  Value pooler(const Value& x) { return tanh(linear("bert.pooler.dense", first(x))); }

  /// Returns the scores of all words at all places; the decoder shares the weight of the word embedding.
  Value masked_words(const Value& x) {
    const std::string name = "cls.predictions";
    const auto result = layer_norm(name + ".transform.LayerNorm",
                                   gelu(linear(name + ".transform.dense", x)), config_.epsilon);
    const auto table = weights("bert.embeddings.word_embeddings.weight");
    const auto scores = node("MatMul", {result, node("Transpose", {table})});
    return add(scores, weights(name + ".bias"));
  }

  /// Pools like sentence-transformers; returns [batch, hidden].
  Value sentence(const Value& x, const Value& counted, const SentencePooling& pooling) {
    auto pooled = pooling.first_token ? first(x) : mean(x, counted);
    if (!pooling.normalize) return pooled;
    const auto length = node("ReduceL2", {pooled}, {{"axes", std::vector<std::int64_t>{1}}});
    return node("Div", {pooled, at_least_some(length)});
  }
  Value mean(const Value& x, const Value& counted) {
    const auto weights = node("Unsqueeze", {counted, integers({2})});
    const auto sum = [&](const Value& of) {
      return node("ReduceSum", {of, integers({1})}, {{"keepdims", std::int64_t{0}}});
    };
    return node("Div", {sum(node("Mul", {x, weights})), at_least_some(sum(weights))});
  }
  /// Keeps the divisor above 0, so that a sentence without tokens gives zeros.
  Value at_least_some(const Value& divisor) { return node("Max", {divisor, scalar(1e-6F)}); }

  const BertConfig& config_;
};

}  // namespace examples
