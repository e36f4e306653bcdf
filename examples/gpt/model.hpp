// A causal decoder assembled from dhp's layers, GPT-2 (Radford et al. 2019) or Llama (Touvron et al. 2023): embeddings,
// pre-norm blocks, a final norm and the head. Parameter names are Hugging Face's; GPT-2's c_attn is split into three
// parts, as in train/gpt2_conv1d.hpp.
#pragma once

#include <dhp/nn/activation.hpp>
#include <dhp/nn/cross_entropy.hpp>
#include <dhp/nn/dropout.hpp>
#include <dhp/nn/gated_feed_forward.hpp>
#include <dhp/nn/layer_norm.hpp>
#include <dhp/nn/residual.hpp>
#include <dhp/nn/rms_norm.hpp>
#include <dhp/nn/self_attention.hpp>

#include "../transformer/parts.hpp"
#include "config.hpp"

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

namespace examples {

/// Returns a decoder's placement on the tensor axis.
[[nodiscard]] inline dhp::Placements gpt_placements(const GptConfig& config) {
  using P = dhp::Placement;
  dhp::Placements table{
      {config.llama ? "model.embed_tokens.weight" : "transformer.wte.weight", P::words}};
  if (!config.tied) table.push_back({"lm_head.weight", P::words});
  if (config.llama)
    table.insert(table.end(), {{"*.self_attn.{q_proj,k_proj,v_proj}.weight", P::heads},
                               {"*.mlp.{gate_proj,up_proj}.weight", P::columns},
                               {"*.{o_proj,down_proj}.weight", P::rows}});
  else
    table.insert(table.end(), {{"*.attn.c_attn.{query,key,value}.*", P::heads},
                               {"*.mlp.c_fc.*", P::columns},
                               {"*.c_proj.weight", P::rows}});
  if (config.share_rows) table.push_back({config.llama ? "*norm.weight" : "*.ln_*", P::shares});
  table.push_back({"*", P::replicated});
  return table;
}

/// Sums the embeddings of token and, for GPT-2, position; y [rows, hidden].
template <class Dev>
[[nodiscard]] TokenEmbeddings<Dev> gpt_embeddings(dhp::ModelBuilder<Dev>& build,
                                                  const GptConfig& config) {
  std::vector<dhp::Embedding<Dev>> tables;
  const auto add = [&](const char* name, std::int64_t entries, const char* ids) {
    tables.emplace_back(
        build, name,
        dhp::EmbeddingOptions{.entries = entries, .columns = config.hidden, .ids = ids});
  };
  add(config.llama ? "model.embed_tokens" : "transformer.wte", config.vocabulary, "token_ids");
  if (!config.llama) add("transformer.wpe", config.positions, "positions");
  dhp::Sequential<Dev> after;
  after.add("dropout", dhp::Dropout<Dev>(build, config.dropout));
  return {std::move(tables), std::move(after), 4};
}

/// Adds a norm with this name: RMSNorm for Llama, LayerNorm for GPT-2.
template <class Dev>
void add_gpt_norm(dhp::ModelBuilder<Dev>& build, const std::string& name, const GptConfig& config,
                  dhp::Sequential<Dev>& to) {
  if (config.llama) to.add("norm", dhp::RmsNorm<Dev>(build, name, config.hidden, config.epsilon));
  else to.add("norm", dhp::LayerNorm<Dev>(build, name, config.hidden, config.epsilon));
}

/// The first half of a block: x + attention(norm(x)).
template <class Dev>
[[nodiscard]] dhp::Residual<Dev> gpt_attention(dhp::ModelBuilder<Dev>& build,
                                               const std::string& block, const GptConfig& config) {
  const auto name = block + (config.llama ? ".self_attn" : ".attn");
  dhp::SelfAttentionOptions options{.heads = config.heads,
                                    .columns = config.hidden,
                                    .max_length = config.sequence_length,
                                    .dropout = config.dropout,
                                    .key_heads = config.heads_of_keys(),
                                    .causal = true,
                                    .exchange_heads = config.exchange_heads};
  if (config.llama) {
    options.rotary_base = config.rotary_base;
    options.bias = false;
    options.names = {"q_proj", "k_proj", "v_proj"};
  }
  dhp::Sequential<Dev> body;
  add_gpt_norm(build, block + (config.llama ? ".input_layernorm" : ".ln_1"), config, body);
  body.add("self", dhp::SelfAttention<Dev>(build, config.llama ? name : name + ".c_attn", options));
  body.add("output",
           dhp::Linear<Dev>(build, name + (config.llama ? ".o_proj" : ".c_proj"),
                            {.in = config.hidden,
                             .out = config.hidden,
                             .bias = !config.llama,
                             // Keeps the residual sum's size at any depth (Radford et al. 2019).
                             .weight_init = dhp::normal(0.02 / std::sqrt(2.0 * config.layers))}));
  body.add("dropout", dhp::Dropout<Dev>(build, config.dropout));
  return dhp::Residual<Dev>(std::move(body));
}

/// The second half of a block: x + feed_forward(norm(x)).
template <class Dev>
[[nodiscard]] dhp::Residual<Dev> gpt_feed_forward(dhp::ModelBuilder<Dev>& build,
                                                  const std::string& block,
                                                  const GptConfig& config) {
  const auto name = block + ".mlp";
  dhp::Sequential<Dev> body;
  add_gpt_norm(build, block + (config.llama ? ".post_attention_layernorm" : ".ln_2"), config, body);
  if (config.llama) {
    body.add("gated", dhp::GatedFeedForward<Dev>(
                          build, name + ".gate_proj", name + ".up_proj", name + ".down_proj",
                          {.columns = config.hidden, .inner = config.intermediate()}));
  } else {
    body.add("first", dhp::Linear<Dev>(build, name + ".c_fc",
                                       {.in = config.hidden, .out = config.intermediate()}));
    body.add("gelu", dhp::ActivationLayer<Dev>(config.exact_gelu ? dhp::Activation::gelu
                                                                 : dhp::Activation::gelu_tanh));
    body.add("second",
             dhp::Linear<Dev>(build, name + ".c_proj",
                              {.in = config.intermediate(),
                               .out = config.hidden,
                               .weight_init = dhp::normal(0.02 / std::sqrt(2.0 * config.layers))}));
  }
  body.add("dropout", dhp::Dropout<Dev>(build, config.dropout));
  return dhp::Residual<Dev>(std::move(body));
}

/// The final norm, the head and the cross-entropy of the next token; side input "labels" i32 [rows], -1 for none.
template <class Dev>
class GptLoss {
 public:
  GptLoss(dhp::ModelBuilder<Dev>& build, const GptConfig& config,
          dhp::ParameterList<Dev> word_table)
      : entropy_(build, config.vocabulary,
                 build.placement(config.tied ? word_table[0]->spec.name : "lm_head.weight"), 0,
                 config.tied) {
    add_gpt_norm(build, config.llama ? "model.norm" : "transformer.ln_f", config, norm_);
    auto decoder =
        config.tied
            ? dhp::Linear<Dev>(build, "lm_head", std::move(word_table),
                               {.bias = false, .padded = true})
            : dhp::Linear<Dev>(build, "lm_head",
                               {.in = config.hidden, .out = config.vocabulary, .bias = false});
    shares_ = build.whole_rows();
    decoder_of_chosen_.add("decoder", decoder.of_whole_rows());
    decoder_.add("decoder", std::move(decoder));
  }

  [[nodiscard]] std::vector<std::string> term_names() const { return {"tokens"}; }
  void forward(Dev& dev, dhp::Tensor<Dev> x, dhp::Tape<Dev>& tape, dhp::View<Dev> totals) {
    x = decoder_.forward(dev, norm_.forward(dev, std::move(x), tape), tape);
    entropy_.forward(dev, std::move(x), tape.batch().at("labels").view(), tape,
                     totals.as({dhp::loss_fields}));
  }
  /// Returns the vocabulary's scores [chosen rows, vocabulary] for the rows in the side input "predicted_rows".
  dhp::Tensor<Dev> predict(Dev& dev, dhp::Tensor<Dev> x, dhp::Tape<Dev>& tape) {
    x = shares_.gather(dev, norm_.forward(dev, std::move(x), tape), tape);
    x = rows_at(dev, x, tape.batch().at("predicted_rows"));
    return entropy_.gather_logits(dev, decoder_of_chosen_.forward(dev, std::move(x), tape));
  }
  dhp::Tensor<Dev> backward(Dev& dev, dhp::ConstView<Dev> scales, dhp::Tape<Dev>& tape) {
    auto dy = entropy_.backward(dev, tape.batch().at("labels").view(), scales.slice(0, 1), tape);
    return norm_.backward(dev, decoder_.backward(dev, std::move(dy), tape), tape);
  }
  [[nodiscard]] double flops(const dhp::Shape& in, const dhp::MicroBatch<Dev>& batch) const {
    return norm_.flops(in, batch) + decoder_.flops(in, batch) +
           entropy_.flops(decoder_.output_shape(in, batch));
  }
  void parameters(dhp::ParameterList<Dev>& out) const {
    norm_.parameters(out);
    decoder_.parameters(out);
  }

 private:
  dhp::Sequential<Dev> norm_, decoder_, decoder_of_chosen_;
  dhp::RowShares<Dev> shares_;  // gathers the norm's rows
  dhp::CrossEntropy<Dev> entropy_;
};

/// Builds the whole model. A pipeline can cut it between half blocks.
template <class Dev>
[[nodiscard]] dhp::Model<Dev> gpt(dhp::ModelBuilder<Dev>& build, const GptConfig& config) {
  dhp::check(config.sequence_length <= config.positions, "gpt: --sequence-length ",
             config.sequence_length, " is beyond the ", config.positions,
             " positions of this model");
  build.place(gpt_placements(config),
              std::gcd(static_cast<std::int64_t>(config.heads_of_keys()), config.intermediate()));
  dhp::Model<Dev> model;
  auto embeddings = gpt_embeddings(build, config);
  auto table = embeddings.word_table();
  model.add("embeddings", std::move(embeddings));
  for (int number = 0; number < config.layers; ++number) {
    const auto block = dhp::concat(config.llama ? "model.layers." : "transformer.h.", number);
    add_part(model, block + ".attention", gpt_attention(build, block, config), config.recompute);
    add_part(model, block + ".feed_forward", gpt_feed_forward(build, block, config),
             config.recompute);
  }
  model.loss = GptLoss<Dev>(build, config, std::move(table));
  return model;
}

}  // namespace examples
