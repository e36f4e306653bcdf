// A small model that has everything: tied embedding and decoder, attention with dropout on 8 heads, convolutions with
// batch norm in residual blocks, layer norms, two loss terms; 16 layers to cut between. Batch norms see 32 values per
// channel, and the last gamma of a block starts at zero, so that rounding errors do not grow.
#pragma once

#include <dhp/cpu.hpp>
#include <dhp/nn/gated_feed_forward.hpp>
#include <dhp/nn/residual.hpp>
#include <dhp/nn/rms_norm.hpp>
#include <examples/bert/model.hpp>

#include <numeric>
#include <string>
#include <vector>

namespace tests {

using dhp::Cpu;

/// [rows, C] seen as [N, side, side, C], and back.
template <class Dev>
struct Reshape {
  bool to_image;
  std::int64_t side;
  dhp::Tensor<Dev> forward(Dev&, dhp::Tensor<Dev> x, dhp::Tape<Dev>&) {
    return turn(std::move(x), to_image);
  }
  dhp::Tensor<Dev> backward(Dev&, dhp::Tensor<Dev> dy, dhp::Tape<Dev>&) {
    return turn(std::move(dy), !to_image);
  }
  [[nodiscard]] dhp::Shape shape_of(const dhp::Shape& in, bool image) const {
    return image ? dhp::Shape{in.rows() / (side * side), side, side, in.back()}
                 : dhp::Shape{in.rows(), in.back()};
  }
  [[nodiscard]] dhp::Tensor<Dev> turn(dhp::Tensor<Dev> x, bool image) const {
    const auto shape = shape_of(x.shape(), image);
    return std::move(x).reshape(shape);
  }
  [[nodiscard]] dhp::Shape output_shape(const dhp::Shape& in, const dhp::MicroBatch<Dev>&) const {
    return shape_of(in, to_image);
  }
  [[nodiscard]] double flops(const dhp::Shape&, const dhp::MicroBatch<Dev>&) const { return 0; }
  void parameters(dhp::ParameterList<Dev>&) const {}
};

struct EverythingOptions {
  int blocks = 5;  ///< each has three layers
  std::int64_t vocabulary = 64;
  int heads = 8;
  double dropout = 0.1;
  bool recompute = false;
  bool synchronized = false;
  bool decoder = false;  ///< blocks have a decoder's layers, with half as many key heads
};

inline constexpr std::int64_t everything_length = 16;  // a 4 x 4 image for the convolutions
inline constexpr std::int64_t everything_samples = 2;  // per micro-batch

inline examples::BertConfig everything_config(const EverythingOptions& options) {
  return {.layers = options.blocks,
          .hidden = 16,
          .heads = options.heads,
          .vocabulary = options.vocabulary,
          .positions = everything_length,
          .sequence_length = everything_length,
          .dropout = options.dropout};
}

/// Attention and feed-forward halves of decoder blocks, with the parameter names of BERT's blocks.
template <class Dev>
dhp::Residual<Dev> decoder_attention(dhp::ModelBuilder<Dev>& build, const std::string& name,
                                     const examples::BertConfig& config) {
  dhp::Sequential<Dev> body;
  body.add("norm", dhp::RmsNorm<Dev>(build, name + ".attention.norm", config.hidden));
  body.add("self", dhp::SelfAttention<Dev>(build, name + ".attention.self",
                                           {.heads = config.heads,
                                            .columns = config.hidden,
                                            .max_length = config.sequence_length,
                                            .dropout = config.dropout,
                                            .key_heads = config.heads / 2,
                                            .causal = true,
                                            .rotary_base = 100,
                                            .bias = false}));
  body.add("output", dhp::Linear<Dev>(build, name + ".attention.output.dense",
                                      {.in = config.hidden, .out = config.hidden, .bias = false}));
  return dhp::Residual<Dev>(std::move(body));
}
template <class Dev>
dhp::Residual<Dev> decoder_feed_forward(dhp::ModelBuilder<Dev>& build, const std::string& name,
                                        const examples::BertConfig& config) {
  dhp::Sequential<Dev> body;
  body.add("norm", dhp::RmsNorm<Dev>(build, name + ".output.norm", config.hidden));
  body.add("gated", dhp::GatedFeedForward<Dev>(
                        build, name + ".intermediate.dense.gate", name + ".intermediate.dense.up",
                        name + ".output.dense", {.columns = config.hidden, .inner = 24}));
  return dhp::Residual<Dev>(std::move(body));
}

template <class Dev>
dhp::Sequential<Dev> convolution_block(dhp::ModelBuilder<Dev>& build, const std::string& name,
                                       bool synchronized) {
  constexpr std::int64_t channels = 16;
  constexpr std::int64_t inner = 8;
  const auto norm = [&](const std::string& which, std::int64_t of, bool relu) {
    return dhp::BatchNorm<Dev>(build, name + which,
                               {.channels = of,
                                .relu = relu,
                                .gamma_init = relu ? 1.0 : 0.0,
                                .synchronized = synchronized});
  };
  dhp::Sequential<Dev> body;
  body.add("conv1", dhp::Conv2d<Dev>(build, name + ".conv1", {.in = channels, .out = inner}));
  body.add("bn1", norm(".bn1", inner, true));
  body.add("gather",
           dhp::GatherChannels<Dev>(build, inner, build.placement(name + ".conv1.weight")));
  body.add("conv2", dhp::Conv2d<Dev>(build, name + ".conv2",
                                     {.in = inner, .out = inner, .kernel = 3, .padding = 1}));
  body.add("bn2", norm(".bn2", inner, true));
  body.add("conv3", dhp::Conv2d<Dev>(build, name + ".conv3", {.in = inner, .out = channels}));
  auto last = norm(".bn3", channels, false);
  dhp::Sequential<Dev> shortcut;
  const auto down = name + ".downsample";
  shortcut.add("scatter",
               dhp::ScatterChannels<Dev>(build, channels, build.placement(down + ".weight")));
  shortcut.add("downsample", dhp::Conv2d<Dev>(build, down, {.in = channels, .out = channels}));
  dhp::Sequential<Dev> block;
  block.add("to image", Reshape<Dev>{true, 4})
      .add("residual", dhp::ResidualBatchNorm<Dev>(std::move(body), "bn3", std::move(last),
                                                   std::move(shortcut)))
      .add("to rows", Reshape<Dev>{false, 4})
      .add("norm", dhp::LayerNorm<Dev>(build, name + ".norm", channels));
  return block;
}

template <class Dev>
dhp::Model<Dev> everything(dhp::ModelBuilder<Dev>& build, const EverythingOptions& options = {}) {
  const auto config = everything_config(options);
  auto placements = examples::bert_placements();
  placements.insert(placements.begin(),
                    {{"*.{conv1.weight,bn1.*,conv2.weight,bn2.*}", dhp::Placement::columns},
                     {"*.{conv3,downsample}.weight", dhp::Placement::rows}});
  build.place(std::move(placements),
              std::gcd(options.decoder ? options.heads / 2 : options.heads, 8));
  dhp::Model<Dev> model;
  auto embeddings = examples::bert_embeddings(build, config);
  const auto table = embeddings.word_table();
  model.add("embeddings", std::move(embeddings));
  const auto add_layer = [&](const std::string& name, auto layer) {
    if (options.recompute) model.add(name, dhp::recompute<Dev>(std::move(layer)));
    else model.add(name, std::move(layer));
  };
  for (int block = 0; block < config.layers; ++block) {
    const auto name = "block" + std::to_string(block);
    if (options.decoder) add_layer(name + ".attention", decoder_attention(build, name, config));
    else add_layer(name + ".attention", examples::bert_attention(build, name, config));
    add_layer(name + ".conv", convolution_block(build, name + ".conv", options.synchronized));
    if (options.decoder)
      add_layer(name + ".feed_forward", decoder_feed_forward(build, name, config));
    else add_layer(name + ".feed_forward", examples::bert_feed_forward(build, name, config));
  }
  model.loss = examples::BertLoss<Dev>(build, config, table);
  return model;
}

/// Micro-batch k of a step: random tokens of random lengths, padded, every third one masked. A short last micro-batch
/// has fewer `samples`. fixed: the list of masked rows is padded to the number of rows; labels of -1 add no loss.
template <class Dev>
dhp::MicroBatch<Dev> everything_batch(Dev& dev, int step, std::int64_t k,
                                      std::int64_t vocabulary = 64,
                                      std::int64_t samples = everything_samples,
                                      bool fixed = false) {
  const dhp::RandomStream random{99, static_cast<std::uint32_t>(step), 1};
  constexpr auto length = everything_length;
  std::vector<std::int32_t> ids, positions, segments, offsets{0}, lengths, masked_rows,
      masked_labels, first_rows, next_labels;
  std::vector<std::int64_t> numbers;
  const auto first = k * everything_samples;
  for (std::int64_t n = 0; n < samples; ++n) {
    const auto sample = static_cast<std::uint64_t>(first + n) * 100;
    const auto used = 9 + static_cast<std::int32_t>(random.below(8, sample + 99));
    lengths.push_back(used);
    first_rows.push_back(static_cast<std::int32_t>(n * length));
    next_labels.push_back(static_cast<std::int32_t>(random.below(2, sample + 98)));
    for (std::int64_t t = 0; t < length; ++t) {
      const auto at = sample + static_cast<std::uint64_t>(t);
      const auto token = random.below(static_cast<std::uint32_t>(vocabulary), at);
      const bool masked = t < used && (static_cast<std::int64_t>(token) + t) % 3 == 0;
      if (masked) {
        masked_rows.push_back(static_cast<std::int32_t>(n * length + t));
        masked_labels.push_back(static_cast<std::int32_t>(token));
      }
      ids.push_back(masked || t >= used ? 0 : static_cast<std::int32_t>(token));
      positions.push_back(static_cast<std::int32_t>(t));
      segments.push_back(t < used / 2 ? 0 : 1);
      numbers.push_back((first + n) * length + t);
    }
    offsets.push_back(static_cast<std::int32_t>((n + 1) * length));
  }
  const auto hidden = static_cast<std::int64_t>(masked_rows.size());
  if (fixed) {
    masked_rows.resize(ids.size(), 0);
    masked_labels.resize(ids.size(), -1);
  }
  dhp::MicroBatch<Dev> batch;
  batch.index = k;
  batch.first_sample = first;
  batch.samples = samples;
  const auto add = [&](const std::string& name, const auto& values) {
    batch.side.emplace_back(
        name, dhp::Tensor<Dev>::from_host(dev, {static_cast<std::int64_t>(values.size())}, values));
  };
  add("token_ids", ids);
  add("positions", positions);
  add("segments", segments);
  add("offsets", offsets);
  add("lengths", lengths);
  add("row_numbers", numbers);
  add("masked_rows", masked_rows);
  add("masked_labels", masked_labels);
  add("first_rows", first_rows);
  add("next_labels", next_labels);
  batch.counts = {{"masked_tokens", hidden}, {"samples", samples}};
  return batch;
}

}  // namespace tests
