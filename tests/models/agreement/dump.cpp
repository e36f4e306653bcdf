// dump DIRECTORY writes the input of agreement.py, which compares with PyTorch: the weights, inputs, logits, losses and
// gradients of one forward and backward pass of each model.
#include <dhp/cpu.hpp>
#include <dhp/train/checkpoint.hpp>
#include <examples/bert/model.hpp>
#include <examples/resnet50/model.hpp>
#include <tests/models/pictures.hpp>
#include <tests/support/everything.hpp>

#include <cstdio>
#include <cstring>

namespace {

using namespace dhp;

void add_tensor(SafeTensorsWriter& writer, const std::string& name, ConstView<Cpu> view) {
  std::vector<std::int64_t> shape;
  for (int dim = 0; dim < view.shape().rank(); ++dim) shape.push_back(view.shape()[dim]);
  writer.add(name, view.dtype(), shape, {view.bytes(), view.bytes() + view.size_bytes()});
}

/// Adds a parameter in the axis order of weight files.
void add_parameter(SafeTensorsWriter& writer, const std::string& name, const ParameterSpec& spec,
                   ConstView<Cpu> view) {
  const auto element = size_of(view.dtype());
  std::vector<std::byte> bytes(view.size_bytes());
  for (std::int64_t at = 0; at < view.count(); ++at)
    std::memcpy(
        bytes.data() +
            static_cast<std::size_t>(detail::file_place(spec.shape, spec.file_order, at)) * element,
        view.bytes() + static_cast<std::size_t>(at) * element, element);
  writer.add(name, view.dtype(), detail::file_shape(spec.shape, spec.file_order), std::move(bytes));
}

/// Returns the layers' output, and the outputs of BERT's heads on it.
template <class L>
void add_logits(Cpu& dev, SafeTensorsWriter& writer, L& loss, const Tensor<Cpu>& x,
                const Tape<Cpu>& tape) {
  add_tensor(writer, "logits.output", x.view());
  if constexpr (std::is_same_v<L, examples::BertLoss<Cpu>>) {
    auto unrecorded = tape.nested(false, false);
    add_tensor(writer, "logits.masked", loss.predict(dev, x.share(), unrecorded).view());
    add_tensor(writer, "logits.next", loss.next_logits(dev, x, unrecorded).view());
  }
}

template <class L>
void dump(Cpu& dev, std::vector<AnyLayer<Cpu>>& layers, L& loss, const MicroBatch<Cpu>& batch,
          const std::string& path) {
  ParameterList<Cpu> parameters;
  for (const auto& layer : layers) layer.parameters(parameters);
  loss.parameters(parameters);
  ParameterStore<Cpu> store(dev, parameters, {.compute = DType::f64, .seed = 21});
  // Replaces the ones and zeros with which norms and biases begin.
  std::uint32_t use = 1;
  for (const auto& parameter : store.parameters()) {
    if (parameter->spec.buffer || parameter->spec.decays) continue;
    const RandomStream random{.seed = 4, .use = use++};
    std::vector<double> noise;
    for (std::int64_t at = 0; at < parameter->value.count(); ++at)
      noise.push_back(0.1 * random.normal(static_cast<std::uint64_t>(at)));
    axpy(dev, 1, Tensor<Cpu>::from_host(dev, parameter->value.shape(), noise).view(),
         parameter->value);
  }

  Tape<Cpu> tape({}, &batch);
  auto x = batch.input.share();
  for (auto& layer : layers) x = layer.forward(dev, std::move(x), tape);
  SafeTensorsWriter writer;
  add_logits(dev, writer, loss, x, tape);
  const auto terms = static_cast<std::int64_t>(loss.term_names().size());
  Tensor<Cpu> totals(dev, DType::f64, {terms, loss_fields});
  loss.forward(dev, std::move(x), tape, totals.mut());
  const auto found = totals.to_host<double>(dev);
  std::vector<double> means, scales;
  for (std::size_t at = 0; at < found.size(); at += loss_fields) {
    means.push_back(found[at] / found[at + 1]);
    scales.push_back(1 / found[at + 1]);
  }
  add_tensor(writer, "losses", Tensor<Cpu>::from_host(dev, {terms}, means));
  const auto weights = Tensor<Cpu>::from_host(dev, {terms}, scales);
  auto dy = loss.backward(dev, weights.view(), tape);
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer)
    dy = layer->backward(dev, std::move(dy), tape);

  for (const auto& parameter : store.parameters()) {
    if (parameter->spec.buffer) continue;
    add_parameter(writer, "weight." + parameter->spec.name, parameter->spec, parameter->value);
    add_parameter(writer, "gradient." + parameter->spec.name, parameter->spec, parameter->gradient);
  }
  if (batch.input) add_tensor(writer, "input", batch.input.view());
  for (const auto& [name, tensor] : batch.side) add_tensor(writer, "side." + name, tensor.view());
  writer.write(path);
}

void dump_resnet(Cpu& dev, const examples::ResNetConfig& config, const std::string& path) {
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  auto model = examples::resnet(build, config);
  const auto batch = tests::pictures(dev, config.image_size, config.classes, 0);
  dump(dev, model.layers, model.loss, batch, path);
}

void dump_bert(Cpu& dev, const examples::BertConfig& config, const std::string& path) {
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  auto model = examples::bert(build, config);
  // The model hides the type of its heads, so this makes the same heads again, with the same word table.
  ParameterList<Cpu> parameters;
  model.layers.front().parameters(parameters);
  examples::BertLoss<Cpu> heads(build, config, {parameters.front()});
  const auto batch = tests::everything_batch(dev, 0, 0, config.vocabulary, 4);
  dump(dev, model.layers, heads, batch, path);
}

/// A model with a decoder's blocks between BERT's embeddings and heads.
void dump_decoder(Cpu& dev, const examples::BertConfig& config, const std::string& path) {
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  std::vector<AnyLayer<Cpu>> layers;
  auto embeddings = examples::bert_embeddings(build, config);
  const auto table = embeddings.word_table();
  layers.emplace_back("embeddings", std::move(embeddings));
  for (int block = 0; block < config.layers; ++block) {
    const auto name = "bert.encoder.layer." + std::to_string(block);
    layers.emplace_back("attention", tests::decoder_attention(build, name, config));
    layers.emplace_back("feed forward", tests::decoder_feed_forward(build, name, config));
  }
  examples::BertLoss<Cpu> heads(build, config, table);
  const auto batch = tests::everything_batch(dev, 0, 0, config.vocabulary, 4);
  dump(dev, layers, heads, batch, path);
}

void run(const std::string& directory) {
  Cpu dev;
  dump_resnet(dev, {.depth = 14, .width = 8, .image_size = 32, .classes = 7},
              directory + "/resnet14");
  dump_resnet(dev, {.depth = 50, .width = 8, .image_size = 32, .classes = 10},
              directory + "/resnet50");
  dump_resnet(dev,
              {.depth = 26, .width = 4, .image_size = 96, .classes = 5, .label_smoothing = 0.1},
              directory + "/resnet26_large");
  const examples::BertConfig config{.layers = 2,
                                    .hidden = 32,
                                    .heads = 4,
                                    .vocabulary = 97,
                                    .positions = tests::everything_length,
                                    .sequence_length = tests::everything_length,
                                    .dropout = 0};
  dump_bert(dev, config, directory + "/bert");
  dump_decoder(dev, config, directory + "/decoder");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    run(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
