// Benchmark workloads of fixed sizes that the programs and their peers share: a model, one synthetic micro-batch, and
// an optimizer.
#pragma once

#include <dhp/default_device.hpp>
#include <dhp/optim/adamw.hpp>
#include <dhp/optim/sgd.hpp>
#include <examples/bert/bert_rows.hpp>
#include <examples/bert/model.hpp>
#include <examples/resnet50/model.hpp>

#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bench {

using Dev = dhp::DefaultDevice;

struct Workload {
  std::string name;
  std::int64_t samples;             ///< samples in the single micro-batch of a step
  std::int64_t size;                ///< image side in pixels, or sequence length in tokens
  examples::ResNetConfig resnet{};  ///< used if is_bert is false
  examples::BertConfig bert{};
  bool is_bert = false;
};

[[nodiscard]] inline Workload workload(std::string_view name) {
  const auto resnet = [&](std::int64_t samples, std::int64_t size, int depth, std::int64_t width) {
    return Workload{.name = std::string(name),
                    .samples = samples,
                    .size = size,
                    .resnet = {.depth = depth, .width = width, .image_size = size}};
  };
  const auto bert = [&](std::int64_t samples, std::int64_t size, const char* preset) {
    auto config = examples::bert_preset(preset);
    config.vocabulary = 8192;
    config.sequence_length = size;
    return Workload{.name = std::string(name),
                    .samples = samples,
                    .size = size,
                    .bert = config,
                    .is_bert = true};
  };
  if (name == "resnet50") return resnet(8, 96, 50, 64);
  if (name == "resnet50-224") return resnet(64, 224, 50, 64);
  if (name == "resnet14") return resnet(2, 64, 14, 16);
  if (name == "bert-mini") return bert(16, 128, "mini");
  if (name == "bert-base") return bert(32, 128, "base");
  if (name == "bert-tiny") return bert(2, 64, "tiny");
  dhp::fail("unknown workload \"", name,
            "\"; choose resnet50, resnet50-224, resnet14, bert-base, bert-mini or bert-tiny");
}

namespace detail {

[[nodiscard]] inline dhp::HostBatch images(const Workload& of) {
  const dhp::RandomStream random{.seed = 1};
  const dhp::Shape shape{of.samples, of.size, of.size, of.resnet.image_channels};
  std::vector<float> pixels;
  for (std::int64_t at = 0; at < shape.count(); ++at)
    pixels.push_back(static_cast<float>(random.normal(static_cast<std::uint64_t>(at))));
  std::vector<std::int32_t> labels(static_cast<std::size_t>(of.samples));
  std::iota(labels.begin(), labels.end(), 0);
  dhp::HostBatch batch;
  batch.input = dhp::HostArray(shape, pixels);
  batch.put("labels", labels);
  batch.counts = {{"samples", of.samples}};
  return batch;
}

/// Returns full sequences in which every seventh token is masked, close to BERT's 15 %.
[[nodiscard]] inline dhp::HostBatch tokens(const Workload& of) {
  const dhp::RandomStream random{.seed = 1};
  examples::BertRows rows(of.size);
  std::vector<std::int32_t> masked_rows, masked_labels, next_labels;
  const auto vocabulary = static_cast<std::uint32_t>(of.bert.vocabulary);
  for (std::int64_t n = 0; n < of.samples; ++n) {
    examples::SentenceTokens sample{.ids = {}, .second_segment = of.size / 2};
    for (std::int64_t t = 0; t < of.size; ++t) {
      const std::int64_t row = n * of.size + t;
      sample.ids.push_back(
          static_cast<std::int32_t>(random.below(vocabulary, static_cast<std::uint64_t>(row))));
      if (t % 7 != 3) continue;
      masked_rows.push_back(static_cast<std::int32_t>(row));
      masked_labels.push_back(sample.ids.back());
    }
    rows.add(sample);
    next_labels.push_back(static_cast<std::int32_t>(n % 2));
  }
  auto batch = rows.batch();
  batch.put("masked_rows", masked_rows);
  batch.put("masked_labels", masked_labels);
  batch.put("next_labels", next_labels);
  batch.counts = {{"masked_tokens", std::ssize(masked_rows)}, {"samples", of.samples}};
  return batch;
}

}  // namespace detail

/// Returns the micro-batch. compute: the model's compute type, and the type of images.
[[nodiscard]] inline dhp::MicroBatch<Dev> micro_batch(Dev& dev, const Workload& of,
                                                      dhp::DType compute = dhp::DType::f32) {
  auto batch =
      dhp::upload(dev, of.is_bert ? detail::tokens(of) : detail::images(of), 0, {0, of.samples});
  if (of.is_bert) return batch;
  dhp::Tensor<Dev> rounded(dev, compute, batch.input.shape());
  cast(dev, batch.input.view(), rounded.mut());
  batch.input = std::move(rounded);
  return batch;
}

[[nodiscard]] inline dhp::Model<Dev> model(dhp::ModelBuilder<Dev>& build, const Workload& of) {
  return of.is_bert ? examples::bert(build, of.bert) : examples::resnet(build, of.resnet);
}

/// Returns SGD with momentum for images, AdamW for text.
[[nodiscard]] inline std::unique_ptr<dhp::Optimizer<Dev>> optimizer(Dev& dev,
                                                                    dhp::ParameterStore<Dev>& store,
                                                                    const Workload& of) {
  if (of.is_bert) return std::make_unique<dhp::AdamW<Dev>>(dev, store, dhp::AdamWOptions{});
  return std::make_unique<dhp::Sgd<Dev>>(dev, store,
                                         dhp::SgdOptions{.momentum = 0.9, .weight_decay = 1e-4});
}

inline constexpr double learning_rate = 1e-3;
/// A clipping limit above all occurring norms, so that clipping computes the norm but changes nothing.
inline constexpr double clip = 1e6;

}  // namespace bench
