// BERT as an ONNX graph, layer by layer as in bert/model.hpp and bert/encoder.hpp. dhp packs samples; the graph pads
// them, and a mask excludes the padding.
#pragma once

#include "../bert/encoder.hpp"
#include "../bert/published.hpp"
#include "layers.hpp"

#include <string>

namespace examples {

class OnnxBert {
 public:
  using Value = OnnxGraph::Value;

  /// Keeps references to its arguments.
  OnnxBert(OnnxGraph& graph, const OnnxWeights& weights, const PublishedBert& bert)
      : graph_(graph), layers_(graph, weights), config_(bert.config) {}

  /// Builds the whole model with the outputs of this head.
  void build(BertHead head, std::size_t classes, const SentencePooling& pooling) {
    const OnnxGraph::Extents rows{"batch", "sequence"};
    const auto ids = graph_.id_input("input_ids", rows);
    const auto mask = graph_.id_input("attention_mask", rows);
    const auto segments = graph_.id_input("token_type_ids", rows);
    // 1 or 0, by Where instead of a cast to float: tools that convert a graph to fp16 would leave the cast at fp32.
    const auto counts = graph_.node("Greater", {mask, graph_.id(0)});
    const auto counted = graph_.node("Where", {counts, graph_.scalar(1), graph_.scalar(0)});
    const auto hidden = encoder(embeddings(ids, segments), attention_bias(counted));
    if (head == BertHead::none) {
      graph_.output(hidden, "last_hidden_state", {"batch", "sequence", config_.hidden});
      graph_.output(sentence(hidden, counted, pooling), "sentence_embedding",
                    {"batch", config_.hidden});
    } else if (head == BertHead::classes) {
      graph_.output(layers_.linear("classifier", pooler(hidden)), "logits",
                    {"batch", static_cast<std::int64_t>(classes)});
    } else {
      graph_.output(masked_words(hidden), "prediction_logits",
                    {"batch", "sequence", config_.vocabulary});
      if (config_.next_sentence)
        graph_.output(layers_.linear("cls.seq_relationship", pooler(hidden)),
                      "seq_relationship_logits", {"batch", std::int64_t{2}});
    }
  }

 private:
  /// Returns [batch, sequence, hidden].
  Value embeddings(const Value& ids, const Value& segments) {
    const std::string name = "bert.embeddings.";
    const auto length = graph_.node("Shape", {ids}, {{"start", std::int64_t{1}}});
    const auto positions =
        graph_.node("Slice", {layers_.weights(name + "position_embeddings.weight"),
                              graph_.integers({0}), length, graph_.integers({0})});
    const auto words = layers_.embedding(name + "word_embeddings", ids);
    const auto placed = layers_.add(words, positions);
    const auto all =
        layers_.add(placed, layers_.embedding(name + "token_type_embeddings", segments));
    return layers_.layer_norm(name + "LayerNorm", all, config_.epsilon);
  }

  /// Returns [batch, 1, 1, sequence]: 0 for a token; for padding a number by which the softmax is 0 in fp32 and fp16.
  Value attention_bias(const Value& counted) {
    const auto padding = graph_.node("Sub", {graph_.scalar(1), counted});
    const auto bias = graph_.node("Mul", {padding, graph_.scalar(-10000)});
    return graph_.node("Unsqueeze", {bias, graph_.integers({1, 2})});
  }

  Value encoder(Value x, const Value& bias) {
    for (int block = 0; block < config_.layers; ++block) {
      const auto name = dhp::concat("bert.encoder.layer.", block);
      const auto mixed = layers_.self_attention(
          name + ".attention.self", x, bias, {.heads = config_.heads, .columns = config_.hidden});
      const auto attended = layers_.linear(name + ".attention.output.dense", mixed);
      x = layers_.layer_norm(name + ".attention.output.LayerNorm", layers_.add(x, attended),
                             config_.epsilon);
      const auto inner = layers_.gelu(layers_.linear(name + ".intermediate.dense", x));
      x = layers_.layer_norm(name + ".output.LayerNorm",
                             layers_.add(x, layers_.linear(name + ".output.dense", inner)),
                             config_.epsilon);
    }
    return x;
  }

  /// Returns the first token's row, [batch, hidden].
  Value first(const Value& x) {
    return graph_.node("Gather", {x, graph_.id(0)}, {{"axis", std::int64_t{1}}});
  }
  Value pooler(const Value& x) {
    return layers_.tanh(layers_.linear("bert.pooler.dense", first(x)));
  }

  /// Returns the scores of all words at all places; the decoder shares the weight of the word embedding.
  Value masked_words(const Value& x) {
    const std::string name = "cls.predictions";
    const auto made = layers_.layer_norm(name + ".transform.LayerNorm",
                                         layers_.gelu(layers_.linear(name + ".transform.dense", x)),
                                         config_.epsilon);
    const auto table = layers_.weights("bert.embeddings.word_embeddings.weight");
    const auto scores = graph_.node("MatMul", {made, graph_.node("Transpose", {table})});
    return layers_.add(scores, layers_.weights(name + ".bias"));
  }

  /// Pools like sentence-transformers; returns [batch, hidden].
  Value sentence(const Value& x, const Value& counted, const SentencePooling& pooling) {
    auto pooled = pooling.first_token ? first(x) : mean(x, counted);
    if (!pooling.normalize) return pooled;
    const auto length = graph_.node("ReduceL2", {pooled}, {{"axes", std::vector<std::int64_t>{1}}});
    return graph_.node("Div", {pooled, at_least_some(length)});
  }
  Value mean(const Value& x, const Value& counted) {
    const auto weights = graph_.node("Unsqueeze", {counted, graph_.integers({2})});
    const auto sum = [&](const Value& of) {
      return graph_.node("ReduceSum", {of, graph_.integers({1})}, {{"keepdims", std::int64_t{0}}});
    };
    return graph_.node("Div", {sum(graph_.node("Mul", {x, weights})), at_least_some(sum(weights))});
  }
  /// Keeps the divisor above 0, so that a sentence without tokens gives zeros.
  Value at_least_some(const Value& divisor) {
    return graph_.node("Max", {divisor, graph_.scalar(1e-6F)});
  }

  OnnxGraph& graph_;
  OnnxLayers layers_;
  const BertConfig& config_;
};

}  // namespace examples
