#include <dhp/train/name_map.hpp>
#include <tests/support/test.hpp>

namespace {
NameMap names_of(std::initializer_list<const char*> names) {
  std::map<std::string, int> all;
  for (const auto* name : names) all[name] = 0;
  return NameMap(all);
}
}  // namespace

TEST_CASE("name map: BERT's different spellings are found") {
  for (const auto* prefix : {"", "bert."}) {
    const std::string norm = std::string(prefix) + "encoder.layer.0.output.LayerNorm.gamma";
    const auto names = names_of({norm.c_str(), "embeddings.LayerNorm.beta", "pooler.dense.bias",
                                 "embeddings.position_ids"});
    CHECK(*names.find("bert.encoder.layer.0.output.LayerNorm.weight") == norm);
    CHECK(*names.find("bert.embeddings.LayerNorm.bias") == "embeddings.LayerNorm.beta");
    CHECK(*names.find("bert.pooler.dense.bias") == "pooler.dense.bias");
    CHECK(names.find("bert.pooler.dense.weight") == nullptr);
    CHECK(names.all().size() == 3);
  }
  const auto decoder = names_of({"cls.predictions.decoder.bias", "cls.predictions.decoder.weight"});
  CHECK(*decoder.find("cls.predictions.bias") == "cls.predictions.decoder.bias");
  CHECK(decoder.all().size() == 1);
}

TEST_CASE("name map: the model's own name is preferred; ResNet has torchvision's names") {
  const auto both = names_of({"bert.embeddings.LayerNorm.gamma", "bert.embeddings.LayerNorm.weight",
                              "cls.predictions.bias", "cls.predictions.decoder.bias"});
  CHECK(*both.find("bert.embeddings.LayerNorm.weight") == "bert.embeddings.LayerNorm.weight");
  CHECK(*both.find("cls.predictions.bias") == "cls.predictions.bias");
  const auto resnet = names_of({"bn1.running_mean", "bn1.num_batches_tracked", "fc.weight"});
  CHECK(*resnet.find("fc.weight") == "fc.weight");
  CHECK(resnet.all().size() == 2);
}

TEST_CASE("name map: names of custom models are kept, and Llama's without a head are found") {
  for (const std::string name : {"encoder.weight", "h.0.weight", "x.attn.bias", "layers.0.weight",
                                 "x.attn.c_attn.weight", "base_model.model.x.weight"}) {
    const auto names = names_of({name.c_str()});
    REQUIRE(names.find(name) != nullptr);
    CHECK(*names.find(name) == name);
  }
  const auto llama =
      names_of({"layers.1.mlp.up_proj.weight", "embed_tokens.weight", "norm.weight"});
  for (const std::string name :
       {"layers.1.mlp.up_proj.weight", "embed_tokens.weight", "norm.weight"})
    CHECK(*llama.find("model." + name) == name);
}

TEST_CASE("name map: GPT-2's files are mapped, with split and transposed matrices") {
  for (const std::string prefix : {"", "transformer."}) {
    const auto matrix = prefix + "h.3.attn.c_attn.weight", mask = prefix + "h.3.attn.bias";
    const auto names = names_of({matrix.c_str(), mask.c_str(), "wte.weight", "lm_head.weight"});
    for (const std::string third : {"query", "key", "value"})
      CHECK(*names.find("transformer.h.3.attn.c_attn." + third + ".weight") == matrix);
    CHECK(*names.find("transformer.wte.weight") == "wte.weight");
    CHECK(names.all().size() == 5);
  }
  using Extents = std::vector<std::int64_t>;
  const dhp::detail::Conv1dPlace key("transformer.h.0.attn.c_attn.key.weight");
  CHECK(key.name == "transformer.h.0.attn.c_attn.weight");
  CHECK(key.model_name() == "transformer.h.0.attn.c_attn.key.weight");
  CHECK(key.file_shape({2, 5}) == Extents{5, 6});
  CHECK(key.file_place({2, 5}, 1 * 5 + 3) == 3 * 6 + 2 + 1);
  const dhp::detail::Conv1dPlace bias("transformer.h.0.attn.c_attn.value.bias");
  CHECK(bias.file_shape({2}) == Extents{6});
  CHECK(bias.file_place({2}, 1) == 5);
  const dhp::detail::Conv1dPlace second("transformer.h.0.mlp.c_proj.weight");
  CHECK(second.model_name() == "transformer.h.0.mlp.c_proj.weight");
  CHECK((key.moves() && bias.moves() && second.moves()));
  CHECK(second.file_shape({2, 5}) == Extents{5, 2});
  CHECK(second.file_place({2, 5}, 1 * 5 + 3) == 3 * 2 + 1);
  for (const auto* const plain : {"transformer.wte.weight", "transformer.h.0.ln_1.weight",
                                  "model.layers.0.self_attn.q_proj.weight", "fc.c_proj.weight"})
    CHECK(!dhp::detail::Conv1dPlace(plain).moves());
}
