#include <dhp/train/name_map.hpp>
#include <tests/support/test.hpp>

namespace {
NameMap names_of(std::initializer_list<const char*> names) {
  std::map<std::string, int> all;
  for (const auto* name : names) all[name] = 0;
  return NameMap(all);
}
}  // namespace

TEST_CASE("name map: spellings of BERT") {
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

TEST_CASE("name map: the model's own spelling comes first; ResNet's names are torchvision's") {
  const auto both = names_of({"bert.embeddings.LayerNorm.gamma", "bert.embeddings.LayerNorm.weight",
                              "cls.predictions.bias", "cls.predictions.decoder.bias"});
  CHECK(*both.find("bert.embeddings.LayerNorm.weight") == "bert.embeddings.LayerNorm.weight");
  CHECK(*both.find("cls.predictions.bias") == "cls.predictions.bias");
  const auto resnet = names_of({"bn1.running_mean", "bn1.num_batches_tracked", "fc.weight"});
  CHECK(*resnet.find("fc.weight") == "fc.weight");
  CHECK(resnet.all().size() == 2);
}
