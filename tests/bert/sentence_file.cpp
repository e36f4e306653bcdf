#include <examples/bert/bert_rows.hpp>
#include <examples/bert/sentence_file.hpp>
#include <tests/support/test.hpp>

using examples::SentenceFile;

namespace {
using Lines = std::vector<std::string>;
Lines read(std::string_view text, const std::string& name, const std::string& column = "") {
  return SentenceFile(text, name).sentences(column);
}
}  // namespace

TEST_CASE("sentence file: reads lines or one column of a table") {
  CHECK(read("one\n\ntwo\r\nthree", "x.txt") == Lines{"one", "", "two", "three"});
  CHECK(read("id\ttext\n1\ta \"b\"\n2\tc\n", "x.tsv", "text") == Lines{"a \"b\"", "c"});
  CHECK(read("text,id\n\"a, \"\"b\"\"\nc\",1\r\nd,2", "x.csv", "text") ==
        Lines{"a, \"b\"\nc", "d"});
  CHECK(read("{\"t\": \"a\\nb\"}\n\n{\"t\": \"c\"}\n \n", "x.JSONL", "t") == Lines{"a\nb", "c"});
  CHECK(read("\n\nt\r\n\r\n\"\"\r\nb\r\n  \n\n", "x.Csv", "t") == Lines{"", "b"});
  CHECK(read("t,id\ra,1\r\"b\nc\",2\r", "x.csv", "t") == Lines{"a", "b\nc"});
  CHECK(read("one\rtwo", "x.txt") == Lines{"one", "two"});
  // Quotes in a .tsv enclose fields, as pandas writes them, or are letters.
  CHECK(read("t\tid\n\"a\tb\n\"\"c\"\"\"\t1\nd\t2\n", "x.tsv", "t") == Lines{"a\tb\n\"c\"", "d"});
  CHECK(read("t\tid\n\"a\t1\n\"b\" he said\t2\n", "x.tsv", "t") == Lines{"\"a", "\"b\" he said"});
}

TEST_CASE("sentence file: errors name the file and the line") {
  const auto says = [](std::string_view text, const std::string& name, const std::string& column,
                       const char* words) {
    CHECK_THROWS_WITH_AS((void)read(text, name, column), Contains(words), dhp::Error);
  };
  says("a\n", "x.txt", "text", "has no columns");
  says("a,b\n1,2\n", "x.csv", "", "name the one with the text by");
  says("a,b\n1,2\n", "x.csv", "c", "has no column c, but a, b");
  says("a;b\n1;2\n", "x.csv", "a",
       "has no column a, but a;b; fields of a .csv stand between commas");
  says("a,b,a\n1,2,3\n", "x.csv", "a", "line 1: column a stands there twice");
  says("a\tb\n1\n", "x.tsv", "b", "line 2: it has 1 fields, and the first line has 2");
  says("a,b\n1,2\n\n3,4,5\n", "x.csv", "b", "line 4: it has 3 fields, and the first line has 2");
  says("a,b\n1,\"2\n", "x.csv", "b", "line 2: a quote is not closed");
  says("a,b\n1, \"2\"\n", "x.csv", "b", "line 2: a space stands before a quote");
  says("a,b\n1,\"x\ny\"\n\"so\" he,2\n", "x.csv", "b", "line 4: after a closing quote comes \" \"");
  const auto json = [&](const std::string& text, const char* words) {
    says("{\"a\": \"b\"}\n\n" + text + "\n", "x.jsonl", "a", words);
  };
  json("{\"a\": 1}", "line 3: \"a\" is of type number; a text would be right");
  json("{\"a\": null}", "line 3: \"a\" is null; a text would be right");
  json("{\"A\": \"b\"}", "line 3: the object has no \"a\", but A");
  json("{\"a\": \"b\", \"a\": \"c\"}", "line 3: the object has \"a\" twice");
  json("{\"a\": NaN}", "line 3: is not JSON at its byte 7, \"NaN}\"; JSON has no NaN");
  json("{\"a\": 1e400}", "line 3: one of its numbers is beyond 1.8e308");
  json("{'a': 'b'}", "line 3: is not JSON at its byte 2, \"'a': 'b'}\"");
  json("{\n\"a\": \"b\"\n}", "line 3: the object does not end in this line; jq -c .");
  json("[\"a\"]", "line 3: is of type array, and no JSON object");
  says("[{\"a\": \"b\"}]", "x.jsonl", "a", "is a JSON array; jq -c '.[]'");
  says("\xFF\n", "x.txt", "", "x.txt");
  says(
      "\xFF\xFE"
      "a",
      "x.csv", "a", "is UTF-16; iconv");
  says({"\xFF\xFE\0\0a\0\0\0", 8}, "x.txt", "", "is UTF-32; iconv -f UTF-32");
  says("version https://git-lfs.github.com/spec/v1", "x.txt", "", "git lfs pull");
}

TEST_CASE("sentence file: columns are chosen by name, or by number without a header line") {
  using Rows = std::vector<Lines>;
  const auto rows = [](std::string_view text, const std::string& name, const Lines& columns) {
    Rows result;
    for (auto& row : SentenceFile(text, name).rows(columns, 1)) result.push_back(row.fields);
    return result;
  };
  CHECK(SentenceFile("a,b\n\n\"1\n\",2\n3,4\n", "x.csv").rows({"a"}).back().line == 5);
  CHECK(rows("a,b,c\n1,2,3\n4,5,6\n", "x.csv", {"c", "a"}) == Rows{{"3", "1"}, {"6", "4"}});
  CHECK(rows("gj04\t1\t\tA b.\ngj04\t0\t*\tB a.\n", "x.tsv", {"4", "2"}) ==
        Rows{{"A b.", "1"}, {"B a.", "0"}});
  CHECK(rows("{\"t\": \"a\", \"n\": 7}\n", "x.jsonl", {"t", "n"}) == Rows{{"a", "7"}});
  const auto says = [&](std::string_view text, const std::string& name, const Lines& columns,
                        const char* words) {
    CHECK_THROWS_WITH_AS((void)rows(text, name, columns), Contains(words), dhp::Error);
  };
  says("a\tb\n", "x.tsv", {"a", "c"}, "has no column c, but a, b");
  says("a\tb\n", "x.tsv", {"a", "2"}, "has no column 2, but a, b");
  says("a\tb\nc\n", "x.tsv", {"1", "2"}, "line 2: it has 1 fields");
  says("2\tthe cat\n1\tthe dog\n", "x.tsv", {"2"}, "line 1: column 2 may be a name or a number");
  CHECK(rows(",0,1\n0,a,b\n", "x.csv", {"1"}) == Rows{{"b"}});
  says("{\"t\": 7, \"n\": 7}\n", "x.jsonl", {"t", "n"}, "\"t\" is of type number");
  says("{\"t\": \"a\", \"n\": []}\n", "x.jsonl", {"t", "n"}, "\"n\" is of type array");
  says("{\"t\": \"a\", \"n\": null}\n", "x.jsonl", {"t", "n"}, "\"n\" is null; a text or number");
}

TEST_CASE("sentence batcher: a batch has labels and segments; the second sentence has segment 1") {
  const auto samples = std::make_shared<examples::SentenceBatcher::Sentences>();
  samples->push_back({.ids = {2, 7, 3, 8, 3}, .second_segment = 3, .label = 1});
  samples->push_back({.ids = {2, 9, 3}, .label = 0});
  const examples::SentenceBatcher batcher(samples, {.longest = 8, .labeled = true});
  const auto batch = batcher.collate(std::vector<std::int64_t>{1, 0}, 0);
  using I32 = std::vector<std::int32_t>;
  for (const auto& [name, values] : batch.side) {
    CHECK(name != "pooling");
    if (name == "labels") CHECK(values == dhp::HostArray({2}, I32{0, 1}));
    if (name == "segments") CHECK(values == dhp::HostArray({8}, I32{0, 0, 0, 0, 0, 0, 1, 1}));
  }
  CHECK(batch.counts == decltype(batch.counts){{"samples", 2}, {"tokens", 8}, {"token_pairs", 34}});
}

TEST_CASE("sentence batcher: a batch has rows, lengths and the pooling weights of each token") {
  const auto tokens = std::make_shared<examples::SentenceBatcher::Sentences>();
  for (const std::vector<std::int32_t>& ids :
       {std::vector<std::int32_t>{2, 7, 3}, {2, 3}, {2, 4, 5, 3}})
    tokens->push_back({.ids = ids});
  const examples::SentenceBatcher mean(tokens, {.longest = 8, .hidden = 4}),
      first(tokens, {.longest = 8, .first_token = true, .hidden = 4});
  const std::vector<std::int64_t> indices{2, 1};
  const auto array = [&](const auto& batcher, const std::string& wanted) {
    for (auto& [name, values] : batcher.collate(indices, 0).side)
      if (name == wanted) return values;
    return dhp::HostArray();
  };
  using I32 = std::vector<std::int32_t>;
  CHECK(array(mean, "token_ids") == dhp::HostArray({6}, I32{2, 4, 5, 3, 2, 3}));
  CHECK(array(mean, "offsets") == dhp::HostArray({3}, I32{0, 4, 6}));
  CHECK(array(mean, "lengths") == dhp::HostArray({2}, I32{4, 2}));
  CHECK(array(mean, "masked_rows") == dhp::HostArray({1}, I32{1}));
  CHECK(array(mean, "first_rows") == dhp::HostArray({2}, I32{0, 4}));
  CHECK(array(mean, "row_numbers") ==
        dhp::HostArray({6}, std::vector<std::int64_t>{0, 1, 2, 3, 8, 9}));
  using Weights = std::vector<double>;
  CHECK(array(mean, "pooling") ==
        dhp::HostArray({2, 6}, Weights{.25, .25, .25, .25, 0, 0, 0, 0, 0, 0, .5, .5}));
  CHECK(array(first, "pooling") ==
        dhp::HostArray({2, 6}, Weights{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0}));
}
