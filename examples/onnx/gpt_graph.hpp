// A causal decoder as an ONNX graph, layer by layer as in gpt/model.hpp. The rows of a batch have the same length;
// padding at the end does not change earlier tokens.
#pragma once

#include <dhp/ops/rotary.hpp>

#include "../gpt/model.hpp"
#include "layers.hpp"

#include <string>
#include <vector>

namespace examples {

class OnnxGpt : public OnnxLayers {
 public:
  /// Keeps references to its arguments.
  OnnxGpt(const OnnxWeights& weights, const GptConfig& config)
      : OnnxLayers(config.llama ? "llama" : "gpt2", weights), config_(config) {}

  void build() {
    const auto ids = id_input("input_ids", {"batch", "sequence"});
    const auto length = node("Shape", {ids}, {{"start", std::int64_t{1}}});
    const auto of_positions = [&](const Value& table) {
      return node("Slice", {table, integers({0}), length, integers({0})});
    };
    const std::string words = config_.llama ? "model.embed_tokens" : "transformer.wte";
    auto x = embedding(words, ids);
    Attention attention{
        .heads = config_.heads, .columns = config_.hidden, .key_heads = config_.heads_of_keys()};
    if (config_.llama) {
      attention.names = {"q_proj", "k_proj", "v_proj"};
      attention.bias = false;
      attention.cosines = of_positions(angles("rotary.cosines", &dhp::detail::Rotation::cosine));
      attention.sines = of_positions(angles("rotary.sines", &dhp::detail::Rotation::sine));
    } else {
      x = add(x, of_positions(weights("transformer.wpe.weight")));
    }
    const auto mask = later_keys(length);
    for (int number = 0; number < config_.layers; ++number) {
      const auto block =
          dhp::concat(config_.llama ? "model.layers." : "transformer.h.", number, ".");
      const auto mixed = self_attention(
          block + (config_.llama ? "self_attn" : "attn.c_attn"),
          norm(block + (config_.llama ? "input_layernorm" : "ln_1"), x), mask, attention);
      x = add(x, linear(block + (config_.llama ? "self_attn.o_proj" : "attn.c_proj"), mixed));
      x = add(x,
              feed_forward(block + "mlp.",
                           norm(block + (config_.llama ? "post_attention_layernorm" : "ln_2"), x)));
    }
    x = norm(config_.llama ? "model.norm" : "transformer.ln_f", x);
    const auto scores = config_.tied
                            ? node("MatMul", {x, node("Transpose", {weights(words + ".weight")})})
                            : OnnxLayers::linear("lm_head", x, false);
    output(scores, "logits", {"batch", "sequence", config_.vocabulary});
  }

 private:
  Value linear(const std::string& name, const Value& x) {
    return OnnxLayers::linear(name, x, !config_.llama);
  }
  Value norm(const std::string& name, const Value& x) {
    return config_.llama ? rms_norm(name, x, config_.epsilon)
                         : layer_norm(name, x, config_.epsilon);
  }
  Value feed_forward(const std::string& name, const Value& x) {
    if (!config_.llama) {
      const auto inner = linear(name + "c_fc", x);
      return linear(name + "c_proj", config_.exact_gelu ? gelu(inner) : gelu_tanh(inner));
    }
    const auto gate = linear(name + "gate_proj", x);
    const auto open = node("Mul", {gate, node("Sigmoid", {gate})});
    return linear(name + "down_proj", node("Mul", {open, linear(name + "up_proj", x)}));
  }

  /// Returns a table of cosines or sines, [positions, 1, width of a head]; both halves of the width are the same.
  Value angles(const std::string& name, double dhp::detail::Rotation::*part) {
    using dhp::detail::Rotation;
    const auto half = config_.hidden / config_.heads / 2;
    std::vector<float> values;
    for (std::int64_t position = 0; position < config_.positions; ++position)
      for (std::int64_t at = 0; at < 2 * half; ++at)
        values.push_back(static_cast<float>(
            Rotation::of_turns(static_cast<double>(position) *
                               Rotation::turns(std::log(config_.rotary_base), at % half, half)).*
            part));
    return floats(name, {config_.positions, 1, 2 * half}, values);
  }
  /// Returns [sequence, sequence]: 0, or for keys after the query a number so low that the softmax gives 0.
  Value later_keys(const Value& length) {
    const auto square = node("Concat", {length, length}, {{"axis", std::int64_t{0}}});
    const auto all = node("Expand", {scalar(-10000), square});
    return node("Trilu", {all, id(1)}, {{"upper", std::int64_t{1}}});
  }

  const GptConfig& config_;
};

}  // namespace examples
