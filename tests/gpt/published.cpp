// config.json of a decoder: the tokens that begin and end texts, and a head with its own weights.
#include <dhp/train/safetensors.hpp>
#include <examples/gpt/published.hpp>
#include <tests/support/folder.hpp>

using namespace examples;

TEST_CASE("published decoders: the begin and end tokens are the model's own") {
  const tests::Folder folder;
  const auto load = [&](const nlohmann::json& tokens) {
    nlohmann::json config{{"model_type", "gpt2"}, {"vocab_size", 60000}};
    config.update(tokens);
    std::ofstream(folder / "config.json") << config;
    return load_gpt_config(folder.path);
  };
  using Ids = std::vector<std::int32_t>;
  const auto usual = load(nlohmann::json::object());
  CHECK(usual.begin == 50256);
  CHECK(usual.end == Ids{50256});
  const auto of_llama = load({{"model_type", "llama"}});
  CHECK(of_llama.begin == 1);
  CHECK(of_llama.end == Ids{2});
  const auto several = load({{"bos_token_id", nullptr}, {"eos_token_id", {7, 59999}}});
  CHECK(several.begin == 7);
  CHECK(several.end == Ids{7, 59999});
  std::ofstream(folder / "generation_config.json") << R"({"eos_token_id": [8, 7]})";
  CHECK(load({{"eos_token_id", 7}}).end == Ids{7, 8});
  std::filesystem::remove(folder / "generation_config.json");
  const auto refuses = [&](const nlohmann::json& tokens, const char* words) {
    CHECK_THROWS_WITH_AS((void)load(tokens), Contains(words), dhp::Error);
  };
  refuses({{"eos_token_id", nlohmann::json::array()}}, "\"eos_token_id\" names no token");
  refuses({{"eos_token_id", nullptr}}, "\"eos_token_id\" names no token");
  refuses({{"eos_token_id", {0, 60000}}}, "\"eos_token_id\" is 60000");
  refuses({{"bos_token_id", -1}}, "\"bos_token_id\" is -1");
  refuses({{"n_layer", 200000000}}, "200000000, which is no valid size");
  refuses({{"bos_token_id", 4294967296}}, "\"bos_token_id\" is 4294967296");
  refuses({{"vocab_size", 320}},
          "\"eos_token_id\" is 50256, and the model has the tokens 0 to 319; write the id of one "
          "of these there");
}

TEST_CASE("published decoders: a head that differs from the word table is not tied") {
  const tests::Folder folder;
  std::ofstream(folder / "config.json") << R"({"model_type": "gpt2"})";
  const auto tied = [&](char head) {
    dhp::SafeTensorsWriter writer;
    writer.add("wte.weight", dhp::DType::u8, {1}, {std::byte{1}});
    if (head > 0) writer.add("lm_head.weight", dhp::DType::u8, {1}, {std::byte(head)});
    writer.write(folder / "model.safetensors");
    return load_gpt_config(folder.path).tied;
  };
  CHECK(tied(0));
  CHECK(tied(1));
  CHECK_FALSE(tied(2));
  CHECK(tied(0));
  const auto with = [&](const char* replaced) {
    dhp::SafeTensorsWriter writer;
    writer.add(replaced, dhp::DType::u8, {1}, {std::byte{3}});
    writer.write(folder / "adapter_model.safetensors");
    return load_gpt_config(folder.path, folder.path).tied;
  };
  CHECK(with("base_model.model.transformer.h.0.lora_A.weight"));
  CHECK_FALSE(with("base_model.model.lm_head.weight"));
  CHECK_THROWS_WITH_AS((void)with("base_model.model.transformer.wte.weight"),
                       Contains("replaces the embedding, but not the head"), dhp::Error);
}
