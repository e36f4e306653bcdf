// Byte-level BPE: pieces, tokens and their files. Expected pieces are those of Hugging Face's tokenizers 0.23;
// bench/byte_pairs.py compares 10,000 lines of many scripts.
#include <examples/gpt/tokenizer_json.hpp>
#include <tests/support/folder.hpp>

using namespace examples;

namespace {

using Pieces = std::vector<std::string>;

[[nodiscard]] Pieces pieces_of(const std::string& text, SplitRule rule) {
  Pieces result;
  Splitter(text, rule).pieces([&](std::string_view piece) { result.emplace_back(piece); });
  return result;
}

TEST_CASE("byte pairs: text is split into the same pieces as by Hugging Face") {
  struct Case {
    std::string text;
    Pieces gpt2, llama3;
    Pieces qwen2{};  ///< empty: as llama3
  };
  const std::vector<Case> cases = {
      {"Hello, World!  It's 12345 o'clock.",
       {"Hello", ",", " World", "!", " ", " It", "'s", " 12345", " o", "'", "clock", "."},
       {"Hello", ",", " World", "!", " ", " It", "'s", " ", "123", "45", " o", "'clock", "."},
       {"Hello", ",", " World", "!", " ", " It", "'s", " ", "1", "2", "3", "4", "5", " o", "'clock",
        "."}},
      {"I'LL we'Re they\u2019ve 'S '\u017Fo ''d x'm",
       {"I", "'", "LL", " we", "'", "Re", " they", "\u2019", "ve", " '", "S", " '", "\u017Fo",
        " ''", "d", " x", "'m"},
       {"I", "'LL", " we", "'Re", " they", "\u2019ve", " '", "S", " '", "\u017Fo", " ''", "d", " x",
        "'m"}},
      {"  two   spaces \n\n new\r\n\r\n end  ",
       {" ", " two", "  ", " spaces", " \n\n", " new", "\r\n\r\n", " end", "  "},
       {" ", " two", "  ", " spaces", " \n\n", " new", "\r\n\r\n", " end", "  "}},
      {"tabs\t\tand\u00A0nbsp\u3000wide \302\205 nel",
       {"tabs", "\t", "\t", "and", "\u00A0", "nbsp", "\u3000", "wide", " \302\205", " nel"},
       {"tabs", "\t", "\tand", "\u00A0nbsp", "\u3000wide", " \302\205", " nel"}},
      {"\u4E2D\u6587abc\u5B57 \u0627\u0644\u0639 \u0928\u092E\u0938\u094D\u0924\u0947 "
       "\u00BD\u2167\uFF11\uFF12\uFF13\uFF14",
       {"\u4E2D\u6587abc\u5B57", " \u0627\u0644\u0639", " \u0928\u092E\u0938", "\u094D", "\u0924",
        "\u0947", " \u00BD\u2167\uFF11\uFF12\uFF13\uFF14"},
       {"\u4E2D\u6587abc\u5B57", " \u0627\u0644\u0639", " \u0928\u092E\u0938", "\u094D\u0924",
        "\u0947", " ", "\u00BD\u2167\uFF11", "\uFF12\uFF13\uFF14"},
       {"\u4E2D\u6587abc\u5B57", " \u0627\u0644\u0639", " \u0928\u092E\u0938", "\u094D\u0924",
        "\u0947", " ", "\u00BD", "\u2167", "\uFF11", "\uFF12", "\uFF13", "\uFF14"}},
      {"\U0001F600\U0001F680! a_b #tag @x... (1,000.50%)\n",
       {"\U0001F600\U0001F680!", " a", "_", "b", " #", "tag", " @", "x", "...", " (", "1", ",",
        "000", ".", "50", "%)", "\n"},
       {"\U0001F600\U0001F680!", " a", "_b", " #", "tag", " @", "x", "...", " (", "1", ",", "000",
        ".", "50", "%)\n"},
       {"\U0001F600\U0001F680!", " a", "_b", " #", "tag", " @", "x", "...", " (", "1", ",", "0",
        "0", "0", ".", "5", "0", "%)\n"}},
      {"e\u0301 \u200B\u00AD\034 \013",
       {"e", "\u0301", " \u200B\u00AD\034", " \013"},
       {"e", "\u0301", " \u200B\u00AD\034", " \013"}},
      {"don't 'tis rock'n'roll",
       {"don", "'t", " '", "tis", " rock", "'", "n", "'", "roll"},
       {"don", "'t", " '", "tis", " rock", "'n", "'roll"}},
      {" ", {" "}, {" "}},
      {"\n", {"\n"}, {"\n"}},
      {"", {}, {}},
      {"a\n \n b", {"a", "\n \n", " b"}, {"a", "\n \n", " b"}},
      {"!\r\n\n?", {"!", "\r\n", "\n", "?"}, {"!\r\n\n", "?"}},
      {" 1 22 333 4444",
       {" 1", " 22", " 333", " 4444"},
       {" ", "1", " ", "22", " ", "333", " ", "444", "4"},
       {" ", "1", " ", "2", "2", " ", "3", "3", "3", " ", "4", "4", "4", "4"}},
  };
  for (const auto& [text, gpt2, llama3, qwen2] : cases) {
    CAPTURE(text);
    CHECK(pieces_of(text, SplitRule::gpt2) == gpt2);
    CHECK(pieces_of(text, SplitRule::llama3) == llama3);
    CHECK(pieces_of(text, SplitRule::qwen2) == (qwen2.empty() ? llama3 : qwen2));
  }
  CHECK(pieces_of("a\xFF\xFE b", SplitRule::gpt2) == Pieces{"a", "\xFF\xFE", " b"});
}

TEST_CASE("byte pairs: merges are applied in order, bytes and special tokens are restored") {
  const std::vector<std::string> texts{"low lower lowest low low newer newer wider", "low newest"};
  const auto pairs = train_byte_pairs(texts, 264);
  const auto& tokens = pairs.rules().tokens;
  CHECK(tokens.size() == 264);
  CHECK(tokens[0] == end_of_text);
  CHECK(tokens[1 + 'a'] == "a");
  CHECK(Pieces(tokens.begin() + 257, tokens.begin() + 260) == Pieces{"lo", "low", " low"});
  const auto shown = [&](const std::string& text) {
    Pieces result;
    for (const auto id : pairs.encode(text)) result.push_back(tokens[static_cast<std::size_t>(id)]);
    return result;
  };
  CHECK(shown("lowlow") == Pieces{"low", "low"});
  CHECK(shown("a<|endoftext|>b") == Pieces{"a", "<|endoftext|>", "b"});
  for (const std::string text : {"low\xFFlower \xE2\x82", "\u4E2D <|endof", "", "  \n"})
    CHECK(pairs.decode(pairs.encode(text)) == text);
  CHECK(pairs.decode(std::vector<std::int32_t>{264, 1 + 'a', -1}) == "a");
  CHECK_THROWS_AS((void)train_byte_pairs(texts, 257), dhp::Error);
  BytePairRules rules;  // of two overlapping pairs, the one found first is merged
  rules.tokens = {"a", "b", "c", "bc", "ab"};
  rules.merges = {{"b", "c"}, {"a", "b"}};
  CHECK(BytePairs(rules).encode("abcabx") == std::vector<std::int32_t>{0, 3, 4});
  rules.tokens = {"a", "b", "ab", "aba"};  // a pair may exist only after another merge
  rules.merges = {{"ab", "a"}, {"a", "b"}};
  CHECK(BytePairs(rules).encode("abab") == std::vector<std::int32_t>{3, 1});
  rules.tokens = {"a", "b", "c", "bc", "ab"};  // of a pair given twice, the last counts
  rules.merges = {{"a", "b"}, {"b", "c"}, {"a", "b"}};
  CHECK(BytePairs(rules).encode("abc") == std::vector<std::int32_t>{0, 3});
  rules.merges = {{"a", "b"}};  // a merged token may be special, too
  rules.special = SpecialTokens({"ab"});
  rules.special_ids = {4};
  CHECK(BytePairs(rules).encode("aabb") == std::vector<std::int32_t>{0, 4, 1});
}

TEST_CASE("special tokens: the first match wins, at one place the longest; text between is kept") {
  const SpecialTokens tokens({"<a>", "<a><b>", "b>c", "<d>"});
  const auto parts_of = [&](std::string_view text) {
    Pieces result;
    tokens.part(
        text, [&](std::string_view part) { result.emplace_back(part); },
        [&](std::string_view token) { result.push_back("special " + std::string(token)); });
    return result;
  };
  CHECK(parts_of("x<a><a><b>c<b>c<a>") ==
        Pieces{"x", "special <a>", "special <a><b>", "c<", "special b>c", "special <a>"});
  CHECK(parts_of("<d><d>y<d") == Pieces{"special <d>", "special <d>", "y<d"});
  CHECK(parts_of("").empty());
}

TEST_CASE("byte pairs: tokenizer.json is read back, and other tokenizers are refused by name") {
  const std::vector<std::string> texts{"one two\nthree \u4E2D\u6587 three two two",
                                       "\x01\x7F\u00AD"};
  const auto pairs = train_byte_pairs(texts, 270);
  const auto text = tokenizer_json(pairs);
  const auto again = load_byte_pairs(PublishedJson("again", text));
  CHECK(again.rules().tokens == pairs.rules().tokens);
  CHECK(again.rules().merges == pairs.rules().merges);
  CHECK(again.rules().first == end_of_text);
  CHECK(again.encode(texts[0] + end_of_text) == pairs.encode(texts[0] + end_of_text));

  const auto with = [&](auto change) {
    auto json = nlohmann::json::parse(text);
    change(json);
    return load_byte_pairs(PublishedJson("tokenizer.json", json.dump()));
  };
  const auto refuses = [&](auto change, const char* why) {
    CHECK_THROWS_WITH_AS((void)with(change), Contains(why), dhp::Error);
  };
  using Json = nlohmann::json;
  refuses([](Json& j) { j["model"]["type"] = "Unigram"; }, "its tokenizer is Unigram");
  refuses([](Json& j) { j["model"]["byte_fallback"] = true; }, "byte_fallback");
  refuses([](Json& j) { j["normalizer"] = {{"type", "NFC"}}; }, "it has the normalizer NFC");
  refuses([](Json& j) { j["pre_tokenizer"]["type"] = "Metaspace"; },
          "its pre-tokenizer is Metaspace");
  refuses([](Json& j) { j["pre_tokenizer"]["add_prefix_space"] = true; },
          "a space before each text");
  refuses([](Json& j) { j["model"]["merges"].push_back("q w"); }, "not in its vocabulary");
  refuses([](Json& j) { j["model"]["merges"] = {{1, 2}}; }, "tokenizer.json is damaged: ");
  refuses([](Json& j) { j["model"].erase("merges"); }, "tokenizer.json is damaged: ");
  refuses([](Json& j) { j["model"]["unk_token"] = "<unk>"; }, "unk_token is <unk>; dhp has none");
  refuses(
      [](Json& j) {
        j["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", "x"}};
      },
      "tokenizer.json is damaged: ");
  // The template around a text may be one token before it, or nothing.
  const auto template_of = [](Json& j) -> Json& { return j["post_processor"]["single"]; };
  refuses([&](Json& j) { template_of(j)[0]["SpecialToken"]["id"] = "[no]"; },
          "the token before each text, \"[no]\" is not in its vocabulary");
  refuses([&](Json& j) { template_of(j).push_back(template_of(j)[0]); }, "of a text; dhp puts one");
  refuses(
      [&](Json& j) {
        template_of(j) = {template_of(j)[1], template_of(j)[0]};
      },
      "of a text; dhp puts one");
  refuses([&](Json& j) { template_of(j) = Json::object(); }, "makes {} of a text");
  refuses(
      [](Json& j) {
        j["post_processor"] = {{"type", "RobertaProcessing"}};
      },
      "its post-processor is RobertaProcessing");
  refuses(
      [](Json& j) {
        j["post_processor"] = {{"type", "Sequence"}, {"processors", {3}}};
      },
      "tokenizer.json is damaged: ");
  CHECK(with([&](Json& j) { template_of(j) = Json::array({template_of(j)[1]}); }).rules().first ==
        "");
  CHECK(with([](Json& j) {
          const auto before = j["post_processor"];
          j["post_processor"] = {{"type", "Sequence"},
                                 {"processors", {{{"type", "ByteLevel"}}, before}}};
        })
            .rules()
            .first == end_of_text);
  refuses([](Json& j) { j["added_tokens"][0]["lstrip"] = true; }, "has the rule lstrip");
  refuses([](Json& j) { j["model"]["dropout"] = 0.1; }, "leaves out merges at random");
  // An added token may have the letters of another token's bytes. It has its own id.
  const auto spaced = with([](Json& j) {
    j["added_tokens"].push_back({{"id", j["model"]["vocab"].size()}, {"content", " "}});
  });
  const auto own = static_cast<std::int32_t>(spaced.size() - 1);
  CHECK(spaced.encode("x y") == std::vector{pairs.find("x"), own, pairs.find("y")});
  refuses(
      [](Json& j) {
        j["added_tokens"].push_back({{"content", "\u00E9"}});
      },
      "its added token \u00E9 is also how");
  refuses([](Json& j) { j["model"]["vocab"]["zz"] = 9999; }, "has the id 9999");
  // Llama's tokenizer: another split, merges as pairs, whole words that are tokens.
  const auto llama = with([](Json& j) {
    const auto level = j["pre_tokenizer"];
    j["pre_tokenizer"] = {{"type", "Sequence"},
                          {"pretokenizers",
                           {{{"type", "Split"},
                             {"pattern", {{"Regex", llama3_pattern}}},
                             {"behavior", "Isolated"},
                             {"invert", false}},
                            level}}};
    j["pre_tokenizer"]["pretokenizers"][1]["use_regex"] = false;
    j["model"]["ignore_merges"] = true;
    j["model"]["merges"] = Json::array({Json::array({"w", "o"})});
  });
  CHECK(llama.rules().split == SplitRule::llama3);
  CHECK(llama.encode(" two") == std::vector<std::int32_t>{pairs.find(" two")});
  CHECK(llama.encode(" twot").size() == 4);
}

TEST_CASE("byte pairs: a character cut off at the end of a text becomes U+FFFD") {
  CHECK(readable("caf\xC3\xA9 \xF0\x9F\x98") == "caf\xC3\xA9 \uFFFD");
  CHECK(readable("\xA9\xFF\xFFz") == "\uFFFD\uFFFD\uFFFDz");
  CHECK(readable("\xFF\xA9\xA9 \xE4\xB8z \xED\xA0\x80") ==
        "\uFFFD\uFFFD\uFFFD \uFFFDz \uFFFD\uFFFD\uFFFD");
}

}  // namespace
