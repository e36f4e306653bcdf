// The models have the parameters of the originals: their number and names. Only a description is made, because BERT
// large would take gigabytes.
#include <dhp/cpu.hpp>
#include <examples/bert/model.hpp>
#include <examples/resnet50/model.hpp>
#include <tests/support/test.hpp>

namespace {

/// Elements of each tensor, by name; a tied tensor counts once.
using Sizes = std::map<std::string, std::int64_t>;

struct Description {
  Sizes weights;
  Sizes buffers;
};

Description describe(const Model<Cpu>& model) {
  Description found;
  std::set<ParameterState<Cpu>*> seen;
  for (const auto& parameter : model.parameters()) {
    if (!seen.insert(parameter.get()).second) continue;
    auto& sizes = parameter->spec.buffer ? found.buffers : found.weights;
    INFO(parameter->spec.name);
    CHECK(sizes.emplace(parameter->spec.name, parameter->spec.shape.count()).second);
  }
  return found;
}

Description resnet(const examples::ResNetConfig& config) {
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  return describe(examples::resnet(build, config));
}
Description bert(const examples::BertConfig& config) {
  ModelBuilder<Cpu> build(Comm<Cpu>{});
  return describe(examples::bert(build, config));
}

std::int64_t sum(const Sizes& sizes) {
  std::int64_t total = 0;
  for (const auto& [name, size] : sizes) total += size;
  return total;
}

std::set<std::string> names(const Sizes& sizes) {
  std::set<std::string> found;
  for (const auto& [name, size] : sizes) found.insert(name);
  return found;
}

void add_dense(std::set<std::string>& names, const std::string& layer) {
  names.insert(layer + ".weight");
  names.insert(layer + ".bias");
}

}  // namespace

TEST_CASE("ResNet-50 has 25,557,032 parameters under torchvision's names") {
  const auto found = resnet({});
  CHECK(sum(found.weights) == 25'557'032);

  std::set<std::string> weights;
  std::set<std::string> buffers;
  const auto add_norm = [&](const std::string& name) {
    add_dense(weights, name);
    buffers.insert(name + ".running_mean");
    buffers.insert(name + ".running_var");
  };
  weights.insert("conv1.weight");
  add_norm("bn1");
  const int blocks[] = {3, 4, 6, 3};
  for (int group = 0; group < 4; ++group)
    for (int block = 0; block < blocks[group]; ++block) {
      const auto name = concat("layer", group + 1, ".", block, ".");
      for (int conv = 1; conv <= 3; ++conv) {
        weights.insert(concat(name, "conv", conv, ".weight"));
        add_norm(concat(name, "bn", conv));
      }
      if (block > 0) continue;
      weights.insert(name + "downsample.0.weight");
      add_norm(name + "downsample.1");
    }
  add_dense(weights, "fc");
  CHECK(weights.size() == 161);
  CHECK(names(found.weights) == weights);
  CHECK(names(found.buffers) == buffers);
  CHECK(found.buffers.at("layer4.2.bn3.running_var") == 2048);
}

TEST_CASE("deeper ResNets have their published sizes, small images a 3x3 stem") {
  CHECK(sum(resnet({.depth = 101}).weights) == 44'549'160);
  CHECK(sum(resnet({.depth = 152}).weights) == 60'192'808);
  CHECK(resnet({.image_size = 65}).weights.at("conv1.weight") == 64 * 3 * 7 * 7);
  CHECK(resnet({.image_size = 64}).weights.at("conv1.weight") == 64 * 3 * 3 * 3);
  CHECK(resnet({.image_size = 28, .image_channels = 1}).weights.at("conv1.weight") == 64 * 3 * 3);
}

TEST_CASE("BERT base has 110,106,428 parameters, large 336,226,108, both with both heads") {
  CHECK(sum(bert(examples::bert_preset("base")).weights) == 110'106'428);
  CHECK(sum(bert(examples::bert_preset("large")).weights) == 336'226'108);
}

TEST_CASE("BERT's parameters have Hugging Face's names, the decoder is the word table") {
  const auto found = bert(examples::bert_preset("base"));
  CHECK(found.buffers.empty());

  std::set<std::string> expected;
  for (const auto* table : {"word", "position", "token_type"})
    expected.insert(concat("bert.embeddings.", table, "_embeddings.weight"));
  add_dense(expected, "bert.embeddings.LayerNorm");
  for (int layer = 0; layer < 12; ++layer)
    for (const auto* part : {"attention.self.query", "attention.self.key", "attention.self.value",
                             "attention.output.dense", "attention.output.LayerNorm",
                             "intermediate.dense", "output.dense", "output.LayerNorm"})
      add_dense(expected, concat("bert.encoder.layer.", layer, ".", part));
  for (const auto* head : {"bert.pooler.dense", "cls.predictions.transform.dense",
                           "cls.predictions.transform.LayerNorm", "cls.seq_relationship"})
    add_dense(expected, head);
  expected.insert("cls.predictions.bias");
  CHECK(names(found.weights) == expected);
  CHECK(found.weights.at("cls.predictions.bias") == 30522);
}

TEST_CASE("the presets are the published shapes; another name is refused") {
  const auto is = [](const char* name, int layers, std::int64_t hidden, int heads) {
    const auto config = examples::bert_preset(name);
    return config.layers == layers && config.hidden == hidden && config.heads == heads &&
           config.vocabulary == 30522 && config.intermediate() == 4 * hidden;
  };
  CHECK(is("tiny", 2, 128, 2));
  CHECK(is("mini", 4, 256, 4));
  CHECK(is("small", 4, 512, 8));
  CHECK(is("base", 12, 768, 12));
  CHECK(is("large", 24, 1024, 16));
  CHECK_THROWS_WITH_AS(examples::bert_preset("huge"), Contains("choose tiny, mini"), Error);
  CHECK_THROWS_WITH_AS(examples::resnet_blocks(18), Contains("choose 14, 26, 50"), Error);
}
