// Training of a vocabulary: it agrees with a slow version, is deterministic, and leaves no [UNK].
#include <examples/bert/sentences.hpp>
#include <examples/bert/synthetic_text.hpp>
#include <examples/bert/wordpiece_train.hpp>
#include <tests/support/test.hpp>

namespace {

using Counts = std::vector<std::pair<std::string, std::int64_t>>;

examples::Text text_of(std::string_view lines) {
  examples::Text text;
  examples::add_documents(lines, examples::SentenceRule::lines, text);
  return text;
}

// The same algorithm, but it counts all pairs again before each join.
std::vector<std::string> slow_twin(const Counts& words, std::int64_t size, std::int64_t least) {
  std::vector<std::string> tokens(examples::Vocabulary::special_tokens.begin(),
                                  examples::Vocabulary::special_tokens.end());
  std::set<std::string> characters;
  std::vector<std::pair<std::vector<std::string>, std::int64_t>> split;
  for (const auto& [word, count] : words) {
    std::vector<std::string> pieces;
    for (const char letter : word)
      pieces.push_back((pieces.empty() ? "" : "##") + std::string(1, letter));
    characters.insert(pieces.begin(), pieces.end());
    split.emplace_back(std::move(pieces), count);
  }
  tokens.insert(tokens.end(), characters.begin(), characters.end());
  const auto id = [&](const std::string& token) {
    return std::find(tokens.begin(), tokens.end(), token) - tokens.begin();
  };
  while (static_cast<std::int64_t>(tokens.size()) < size) {
    std::map<std::pair<std::ptrdiff_t, std::ptrdiff_t>, std::int64_t> pairs;
    for (const auto& [pieces, count] : split)
      for (std::size_t at = 0; at + 1 < pieces.size(); ++at)
        pairs[{id(pieces[at]), id(pieces[at + 1])}] += count;
    std::pair<std::ptrdiff_t, std::ptrdiff_t> best{-1, -1};
    for (const auto& [pair, count] : pairs)
      if (count >= least && (best.first < 0 || count > pairs.at(best))) best = pair;
    if (best.first < 0) break;
    const auto left = tokens[static_cast<std::size_t>(best.first)];
    const auto right = tokens[static_cast<std::size_t>(best.second)];
    const auto joined = left + right.substr(2);
    if (id(joined) == static_cast<std::ptrdiff_t>(tokens.size())) tokens.push_back(joined);
    for (auto& [pieces, count] : split)
      for (std::size_t at = 0; at + 1 < pieces.size(); ++at)
        if (pieces[at] == left && pieces[at + 1] == right) {
          pieces[at] = joined;
          pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(at) + 1);
        }
  }
  return tokens;
}

TEST_CASE("wordpiece training: words are counted in byte order") {
  CHECK(examples::count_words(text_of("b a\nA, b b")) == Counts{{",", 1}, {"a", 2}, {"b", 3}});
}

TEST_CASE("wordpiece training: the most frequent pair is joined first") {
  const auto result = examples::train_wordpiece(text_of("hug hug hug pug pug hugs"), {.size = 100});
  const std::vector<std::string> expected{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]",
                                          "##g",   "##s",   "##u",   "h",     "p",
                                          "##ug",  "hug",   "pug"};
  CHECK(result.tokens() == expected);
}

TEST_CASE("wordpiece training: agrees with a slow reference at every vocabulary size") {
  // Words have few letters, so that pairs overlap ("aaa") and are often equally frequent.
  const dhp::RandomStream random{5, 0, 0};
  for (std::uint64_t round = 0; round < 12; ++round) {
    std::map<std::string, std::int64_t> counts;
    for (std::uint64_t word = 0; word < 60; ++word) {
      const auto at = (round * 60 + word) * 32;
      std::string letters(1 + random.below(9, at), 'a');
      for (std::size_t letter = 0; letter < letters.size(); ++letter)
        letters[letter] = static_cast<char>('a' + random.below(2 + round % 3, at + 2 + letter));
      counts[letters] += 1 + random.below(5, at + 1);
    }
    const Counts words(counts.begin(), counts.end());
    for (const std::int64_t size : {14, 20, 40, 200}) {
      INFO("round ", round, " size ", size);
      CHECK(examples::joined_pieces(words, {.size = size}) == slow_twin(words, size, 2));
    }
  }
}

TEST_CASE("wordpiece training: the training text has no [UNK], and its pieces spell its words") {
  const auto text = text_of(
      "the quick brown fox jumps over the lazy dog\npack my box with five dozen jugs, the dog "
      "jumps\nhow quickly daft jumping zebras vex\n");
  const examples::WordPiece pieces(examples::train_wordpiece(text, {.size = 120}));
  for (std::int64_t number = 0; number < text.sentences(); ++number) {
    const auto ids = pieces.encode(examples::sentence_text(text, number));
    CHECK(std::count(ids.begin(), ids.end(), pieces.vocabulary().unknown()) == 0);
    std::string letters, wanted(examples::sentence_text(text, number));
    std::erase(wanted, ' ');
    for (const auto id : ids)
      letters += pieces.vocabulary().token(id).substr(pieces.vocabulary().continues(id) ? 2 : 0);
    CHECK(letters == wanted);
  }
}

TEST_CASE("wordpiece training: vocabularies keep to their size, and drop rare characters first") {
  const auto text = text_of("aa aa aa bb bb cc \xE4\xB8\xAD");
  for (const std::int64_t size : {7, 8, 9, 11, 50}) {
    const auto result = examples::train_wordpiece(text, {.size = size});
    CHECK(result.size() <= size);
    CHECK(result.find("a") >= 0);
  }
  const auto small = examples::train_wordpiece(text, {.size = 50, .alphabet = 4});
  CHECK(small.find("a") >= 0);
  CHECK(small.find("##b") >= 0);
  CHECK(small.find("\xE4\xB8\xAD") == -1);
  CHECK(small.find("cc") == -1);
  CHECK_THROWS_WITH_AS(examples::train_wordpiece(text_of("\u200B"), {.name = "a.txt"}),
                       Contains("a.txt: the text holds no word"), dhp::Error);
}

}  // namespace
