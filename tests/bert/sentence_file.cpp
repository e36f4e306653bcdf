#include <examples/bert/sentence_batcher.hpp>
#include <examples/bert/sentence_file.hpp>

#include <doctest/doctest.h>

using examples::SentenceFile;

namespace {
using Lines = std::vector<std::string>;
Lines read(std::string_view text, const std::string& name, const std::string& column = "") {
  return SentenceFile(text, name).sentences(column);
}
}  // namespace

TEST_CASE("sentence file: lines, or a column of several") {
  CHECK(read("one\n\ntwo\r\nthree", "x.txt") == Lines{"one", "", "two", "three"});
  CHECK(read("id\ttext\n1\ta \"b\"\n2\tc\n", "x.tsv", "text") == Lines{"a \"b\"", "c"});
  CHECK(read("text,id\n\"a, \"\"b\"\"\nc\",1\r\nd,2", "x.csv", "text") ==
        Lines{"a, \"b\"\nc", "d"});
  CHECK(read("{\"t\": \"a\\nb\"}\n{\"t\": \"c\"}\n", "x.jsonl", "t") == Lines{"a\nb", "c"});
}

TEST_CASE("sentence file: what is wrong is said with its line") {
  const auto says = [](std::string_view text, const std::string& name, const std::string& column,
                       const char* words) {
    CHECK_THROWS_WITH_AS((void)read(text, name, column), doctest::Contains(words), dhp::Error);
  };
  says("a\n", "x.txt", "text", "has no columns");
  says("a,b\n1,2\n", "x.csv", "", "say by --text-column");
  says("a,b\n1,2\n", "x.csv", "c", "has no column c, but a, b");
  says("a\tb\n1\n", "x.tsv", "b", "line 2: it has 1 fields");
  says("a,b\n1,\"2\n", "x.csv", "b", "line 2: a quote is not closed");
  says("{\"a\": 1}\n", "x.jsonl", "a", "line 1: no JSON object with a text \"a\"");
  says("\xFF\n", "x.txt", "", "x.txt");
}

TEST_CASE("sentence file: several columns, by name, or by number where no line has names") {
  using Rows = std::vector<Lines>;
  const auto rows = [](std::string_view text, const std::string& name, const Lines& columns) {
    return SentenceFile(text, name).rows(columns, 1);
  };
  CHECK(rows("a,b,c\n1,2,3\n4,5,6\n", "x.csv", {"c", "a"}) == Rows{{"3", "1"}, {"6", "4"}});
  CHECK(rows("gj04\t1\t\tA b.\ngj04\t0\t*\tB a.\n", "x.tsv", {"4", "2"}) ==
        Rows{{"A b.", "1"}, {"B a.", "0"}});
  CHECK(rows("{\"t\": \"a\", \"n\": 7}\n", "x.jsonl", {"t", "n"}) == Rows{{"a", "7"}});
  const auto says = [&](std::string_view text, const std::string& name, const Lines& columns,
                        const char* words) {
    CHECK_THROWS_WITH_AS((void)rows(text, name, columns), doctest::Contains(words), dhp::Error);
  };
  says("a\tb\n", "x.tsv", {"a", "c"}, "has no column c, but a, b");
  says("a\tb\n", "x.tsv", {"a", "2"}, "has no column 2, but a, b");
  says("a\tb\nc\n", "x.tsv", {"1", "2"}, "line 2: it has 1 fields");
  says("{\"t\": 7, \"n\": 7}\n", "x.jsonl", {"t", "n"}, "no JSON object with a text \"t\"");
  says("{\"t\": \"a\", \"n\": []}\n", "x.jsonl", {"t", "n"}, "no JSON object with a value \"n\"");
}

TEST_CASE("sentence batcher: labels, and where the second sentence of a pair begins") {
  const auto samples = std::make_shared<examples::SentenceBatcher::Sentences>();
  samples->push_back({.ids = {2, 7, 3, 8, 3}, .second_segment = 3, .label = 1});
  samples->push_back({.ids = {2, 9, 3}, .label = 0});
  const examples::SentenceBatcher batcher(samples, {.longest = 8, .labelled = true});
  const auto batch = batcher.collate(std::vector<std::int64_t>{1, 0}, 0);
  using I32 = std::vector<std::int32_t>;
  for (const auto& [name, values] : batch.side) {
    CHECK(name != "pooling");
    if (name == "labels") CHECK(values == dhp::HostArray({2}, I32{0, 1}));
    if (name == "segments") CHECK(values == dhp::HostArray({8}, I32{0, 0, 0, 0, 0, 0, 1, 1}));
  }
  CHECK(batch.counts == decltype(batch.counts){{"samples", 2}, {"tokens", 8}, {"token_pairs", 34}});
}

TEST_CASE("sentence batcher: rows, lengths and the weights of a sentence's tokens") {
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
