// The small files of a published BERT, written by the test: config.json, tokenizer.json, vocab.txt, and the files of
// sentence-transformers.
#include <dhp/train/safetensors.hpp>
#include <examples/bert/published.hpp>
#include <examples/bert/published_tokenizer.hpp>
#include <tests/support/folder.hpp>

using namespace examples;

namespace {

using Ids = std::vector<std::int32_t>;

nlohmann::json tokenizer_json() {
  return nlohmann::json::parse(R"({
    "added_tokens": [{"id": 0, "content": "[PAD]", "normalized": false},
                     {"id": 4, "content": "[MASK]", "normalized": false},
                     {"id": 10, "content": "[NEW]", "normalized": false}],
    "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                   "strip_accents": null, "lowercase": true},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                 {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
      "pair": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
               {"SpecialToken": {"id": "[SEP]", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}},
               {"SpecialToken": {"id": "[SEP]", "type_id": 1}}]},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
              "max_input_chars_per_word": 6,
              "vocab": {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4,
                        "a": 5, "##a": 6, "cafe": 7, "Cafe": 8, "[": 9}}})");
}
Ids ids_of(const PublishedTokenizer& tokenizer, const std::string& text, std::int64_t longest,
           std::int64_t cut = 0) {
  std::int64_t were_cut = 0;
  auto ids = tokenizer.encode(std::span(&text, 1), longest, were_cut).ids;
  CHECK(were_cut == cut);
  return ids;
}
void write(const std::string& path, const nlohmann::json& json) { std::ofstream(path) << json; }

/// Returns the error with which load(folder) refuses the file.
template <class Load>
void refuses(Load load, const std::string& words) {
  CHECK_THROWS_WITH_AS((void)load(), Contains(words.c_str()), dhp::Error);
}

}  // namespace

TEST_CASE("published: a config gives the sizes and the head; wrong values are refused") {
  const Folder folder;
  const auto load = [&](const nlohmann::json& config) {
    write(folder / "config.json", config);
    return load_published_bert(folder.path);
  };
  auto json = nlohmann::json::parse(R"({"model_type": "bert", "hidden_size": 24,
    "num_hidden_layers": 3, "num_attention_heads": 6, "intermediate_size": 36, "vocab_size": 100,
    "max_position_embeddings": 40, "type_vocab_size": 1, "layer_norm_eps": 1e-05,
    "hidden_act": "gelu", "architectures": ["BertForSequenceClassification"],
    "id2label": {"1": "good", "0": "bad", "2": "so so"}, "classifier_dropout": null})");
  const auto bert = load(json);
  CHECK(bert.config.hidden == 24);
  CHECK(bert.config.layers == 3);
  CHECK(bert.config.heads == 6);
  CHECK(bert.config.intermediate() == 36);
  CHECK(bert.config.vocabulary == 100);
  CHECK(bert.config.positions == 40);
  CHECK(bert.config.segments == 1);
  CHECK(bert.config.epsilon == 1e-5);
  CHECK(bert.head == BertHead::classes);
  CHECK(bert.labels == std::vector<std::string>{"bad", "good", "so so"});
  CHECK(load({{"model_type", "bert"}}).head == BertHead::none);
  nlohmann::json masked{{"model_type", "bert"}, {"architectures", {"BertForMaskedLM"}}};
  CHECK_FALSE(load(masked).config.next_sentence);
  CHECK(head_to_predict(load(masked), "logits") == BertHead::masked_words);
  masked["tie_word_embeddings"] = false;
  refuses([&] { return head_to_predict(load(masked), "logits"); }, "has weights of its own");
  CHECK(head_to_predict(load(masked), "embeddings") == BertHead::none);
  masked.erase("tie_word_embeddings");
  CHECK(load(masked).tied);
  dhp::SafeTensorsWriter writer;
  writer.add("cls.predictions.decoder.weight", dhp::DType::u8, {1}, {std::byte{2}});
  writer.add("embeddings.word_embeddings.weight", dhp::DType::u8, {1}, {std::byte{1}});
  writer.write(folder / "model.safetensors");
  CHECK_FALSE(load(masked).tied);
  // The files that dhp exports can be read, too.
  std::ofstream(folder / "config.json")
      << published_config({.config = {.layers = 2, .hidden = 32, .heads = 4, .epsilon = 1e-6},
                           .head = BertHead::classes,
                           .labels = {"no", "yes"}});
  const auto own = load_published_bert(folder.path);
  CHECK(own.config.intermediate() == 128);
  CHECK(own.config.epsilon == 1e-6);
  CHECK(own.head == BertHead::classes);
  CHECK(own.labels == std::vector<std::string>{"no", "yes"});

  const auto with = [&](const char* key, const nlohmann::json& value, const std::string& words) {
    auto changed = json;
    changed[key] = value;
    refuses([&] { return load(changed); }, words);
  };
  with("model_type", "roberta", "its model is roberta; dhp has bert only");
  with("num_hidden_layers", 200000000, "200000000, which is no valid size");
  with("hidden_act", "gelu_new", "its activation is gelu_new; dhp has gelu only");
  with("position_embedding_type", "relative_key", "its kind of positions is relative_key");
  with("architectures", {"BertForQuestionAnswering"}, "its model is BertForQuestionAnswering");
  with("is_decoder", true, "it is a decoder");
  with("hidden_size", 0, "\"hidden_size\" is 0");
  with("hidden_size", "big", "\"hidden_size\" is \"big\"");
  with("layer_norm_eps", 1, "\"layer_norm_eps\" is 1");
  std::ofstream(folder / "config.json") << "[";
  refuses([&] { return load_published_bert(folder.path); }, "no JSON object");
}

TEST_CASE("published: tokenizer.json is read, with special tokens in text and truncation") {
  const Folder folder;
  const auto load = [&](const nlohmann::json& json) {
    write(folder / "tokenizer.json", json);
    return load_published_tokenizer(folder.path);
  };
  const auto json = tokenizer_json();
  const auto tokenizer = load(json);
  CHECK(ids_of(tokenizer, "Caf\u00E9 aaa", 100) == Ids{2, 7, 5, 6, 6, 3});
  CHECK(ids_of(tokenizer, "aaaaaa aaaaaaa", 100) == Ids{2, 5, 6, 6, 6, 6, 6, 1, 3});
  CHECK(ids_of(tokenizer, "a[MASK]a[NEW][mask", 100) == Ids{2, 5, 4, 5, 10, 9, 1, 3});
  CHECK(ids_of(tokenizer, "", 100) == Ids{2, 3});
  CHECK(ids_of(tokenizer, "a a a", 5) == Ids{2, 5, 5, 5, 3});
  CHECK(ids_of(tokenizer, "a a a", 4, 1) == Ids{2, 5, 5, 3});
  const std::vector<std::string> pair{"a a a", "a"};
  std::int64_t were_cut = 0;
  const auto both = tokenizer.encode(pair, 6, were_cut);
  CHECK(both.ids == Ids{2, 5, 5, 3, 5, 3});
  CHECK(both.second_segment == 4);
  CHECK(were_cut == 1);

  auto older = json;
  older["post_processor"] = {
      {"type", "BertProcessing"}, {"cls", {"[CLS]", 2}}, {"sep", {"[SEP]", 3}}};
  CHECK(ids_of(load(older), "a", 100) == Ids{2, 5, 3});
  older["post_processor"]["sep"] = {"[PAD]", 0};
  refuses([&] { return load(older); }, "its post-processor (BertProcessing) does not put [CLS]");
  auto cased = json;
  cased["normalizer"]["lowercase"] = false;
  CHECK(ids_of(load(cased), "Cafe Caf\u00E9", 100) == Ids{2, 8, 1, 3});
  cased["normalizer"]["strip_accents"] = true;
  CHECK(ids_of(load(cased), "Cafe Caf\u00E9", 100) == Ids{2, 8, 8, 3});
  write(folder / "tokenizer_config.json", {{"do_lower_case", true}, {"strip_accents", nullptr}});
  CHECK(ids_of(load(cased), "Cafe Caf\u00E9", 100) == Ids{2, 7, 7, 3});
  write(folder / "tokenizer_config.json",
        {{"tokenizer_class", "BertTokenizer"}, {"do_lower_case", false}});
  CHECK(ids_of(load(json), "Cafe Caf\u00E9", 100) == Ids{2, 8, 1, 3});
  std::filesystem::remove(folder / "tokenizer_config.json");

  const auto with = [&](const char* at, const nlohmann::json& value, const std::string& words) {
    auto changed = json;
    changed[nlohmann::json::json_pointer(at)] = value;
    refuses([&] { return load(changed); }, words);
  };
  with("/model/type", "BPE", "its tokenizer is BPE; dhp has WordPiece only");
  with("/normalizer/type", "NFC", "its normalizer is NFC");
  with("/normalizer", nullptr, "it has no normalizer");
  with("/normalizer/clean_text", false, "keeps control characters");
  with("/pre_tokenizer/type", "Whitespace", "its pre-tokenizer is Whitespace");
  with("/post_processor", nullptr, "its post-processor (none) does not put [CLS] and [SEP]");
  with("/post_processor/type", "RobertaProcessing", "its post-processor (RobertaProcessing)");
  with("/post_processor/single/0/SpecialToken/id", "[MASK]", "(TemplateProcessing) does not put");
  with("/post_processor/pair/3/Sequence/type_id", 0, "(TemplateProcessing) does not put");
  with("/model/continuing_subword_prefix", "@@", "its mark of a continued word is @@");
  with("/added_tokens/1/lstrip", true, "its added token [MASK] has the rule lstrip");
  with("/model/vocab/a", 11, "token \"##a\" has the id 6, where 5 is next");
  with("/model/vocab", 3, "no numbered list");
}

TEST_CASE("published: vocab.txt is read together with tokenizer_config.json") {
  const Folder folder;
  std::ofstream(folder / "vocab.txt") << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##a\ncafe\nCafe\n";
  CHECK(ids_of(load_published_tokenizer(folder.path), "Caf\u00E9 [MASK]", 9) == Ids{2, 7, 4, 3});
  write(folder / "tokenizer_config.json",
        {{"do_lower_case", false}, {"tokenizer_class", "BertTokenizerFast"}});
  CHECK(ids_of(load_published_tokenizer(folder.path), "Cafe", 9) == Ids{2, 8, 3});
  write(folder / "tokenizer_config.json", {{"tokenizer_class", "RobertaTokenizer"}});
  refuses([&] { return load_published_tokenizer(folder.path); },
          "its tokenizer is RobertaTokenizer");
  write(folder / "tokenizer_config.json",
        {{"added_tokens_decoder", {{"2", {{"content", "[CLS]"}}}, {"9", {{"content", "[e1]"}}}}}});
  refuses([&] { return load_published_tokenizer(folder.path); }, "adds the token [e1] to its");
  write(folder / "tokenizer_config.json", {{"added_tokens_decoder", {{"9", {{"content", 5}}}}}});
  refuses([&] { return load_published_tokenizer(folder.path); },
          "tokenizer_config.json: \"content\" is 5");
  std::filesystem::remove(folder / "tokenizer_config.json");
  write(folder / "added_tokens.json", {{"[e2]", 9}});
  refuses([&] { return load_published_tokenizer(folder.path); }, "adds the token [e2] to its");
  const Folder empty;
  refuses([&] { return load_published_tokenizer(empty.path); }, "no tokenizer.json or vocab.txt");
}

TEST_CASE("published: pooling follows the files of sentence-transformers") {
  const Folder folder;
  CHECK_FALSE(load_sentence_pooling(folder.path).normalize);
  std::filesystem::create_directory(folder / "1_Pooling");
  write(folder / "sentence_bert_config.json", {{"max_seq_length", 256}});
  write(folder / "1_Pooling/config.json", {{"pooling_mode_cls_token", true}});
  auto modules = nlohmann::json::parse(R"([
    {"path": "", "type": "sentence_transformers.models.Transformer"},
    {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}])");
  write(folder / "modules.json", modules);
  const auto pooling = load_sentence_pooling(folder.path);
  CHECK(pooling.first_token);
  CHECK(pooling.normalize);
  CHECK(pooling.longest == 256);
  write(folder / "sentence_bert_config.json", {{"do_lower_case", true}});
  CHECK(load_sentence_pooling(folder.path).lower_case);
  write(folder / "sentence_bert_config.json", {{"do_lower_case", false}});
  const auto with = [&](const char* mode, const nlohmann::json& value) {
    write(folder / "1_Pooling/config.json", {{mode, value}});
    return load_sentence_pooling(folder.path);
  };
  CHECK(with("pooling_mode", "cls").first_token);  // newer files: sentence-transformers 5
  CHECK_FALSE(with("pooling_mode", {"mean"}).first_token);
  refuses([&] { return with("pooling_mode", "max"); }, "max is an unknown pooling");
  refuses([&] { return with("pooling_mode", {"mean", "cls"}); }, "several poolings at once");
  refuses([&] { return with("pooling_mode_max_tokens", true); }, "max is an unknown pooling");
  modules.push_back({{"type", "sentence_transformers.models.Dense"}});
  write(folder / "1_Pooling/config.json", nlohmann::json::object());
  write(folder / "modules.json", modules);
  refuses([&] { return load_sentence_pooling(folder.path); }, "models.Dense");
  modules.back()["type"] = 5;
  write(folder / "modules.json", modules);
  refuses([&] { return load_sentence_pooling(folder.path); }, "modules.json: \"type\" is 5");

  const Folder newer;
  write(newer / "sentence_bert_config.json", {{"transformer_task", "feature-extraction"}});
  write(newer / "tokenizer_config.json", {{"model_max_length", 1e30}});
  CHECK(load_sentence_pooling(newer.path).longest_of({.positions = 40}) == 40);
  write(newer / "tokenizer_config.json", {{"model_max_length", 30}});
  CHECK(load_sentence_pooling(newer.path).longest_of({.positions = 40}) == 30);
  write(newer / "config_sentence_transformers.json",
        {{"prompts", {{"query", "query: "}, {"document", ""}}}, {"default_prompt_name", nullptr}});
  CHECK(load_sentence_pooling(newer.path).longest_of({.positions = 20}) == 20);
  write(newer / "config_sentence_transformers.json",
        {{"prompts", {{"query", "query: "}}}, {"default_prompt_name", "query"}});
  refuses([&] { return load_sentence_pooling(newer.path); }, "its prompt \"query\" precedes");
}
