// Pairs of sentences: true successors, random successors, and a split in which no sentence is on both sides.
#include <examples/bert/sentence_pairs.hpp>
#include <tests/support/test.hpp>

#include "text_fixture.hpp"

namespace {

using examples::Pairing;
static_assert(dhp::Dataset<examples::SentencePairs>);

// Sentence number s holds the one token s.
std::shared_ptr<const examples::TokenText> numbered(const std::vector<int>& documents) {
  examples::TokenText text;
  for (const int sentences : documents) {
    for (int at = 0; at < sentences; ++at)
      text.add_sentence(std::vector{static_cast<std::int32_t>(text.sentences())});
    text.end_document();
  }
  return std::make_shared<const examples::TokenText>(std::move(text));
}

std::vector<std::pair<std::int64_t, std::int64_t>> list(const examples::SentencePairs& pairs) {
  std::vector<std::pair<std::int64_t, std::int64_t>> result;
  for (std::int64_t at = 0; at < pairs.size(); ++at)
    result.emplace_back(pairs.get(at).first, pairs.get(at).second);
  return result;
}
using List = std::vector<std::pair<std::int64_t, std::int64_t>>;

TEST_CASE("sentence pairs: pairs are neighbors, or the first sentence with each other one") {
  const std::vector<dhp::Range> parts{{0, 3}, {3, 4}, {4, 6}};
  CHECK(list({numbered({3, 1, 2}), parts, Pairing::next}) == List{{0, 1}, {1, 2}, {4, 5}});
  CHECK(list({numbered({3, 1, 2}), parts, Pairing::first}) == List{{0, 1}, {0, 2}, {4, 5}});
}

TEST_CASE("sentence pairs: too little text is refused") {
  CHECK_THROWS_WITH_AS(all_pairs(numbered({1, 1, 1})), Contains("has 0 pairs of sentences"),
                       dhp::Error);
  CHECK_THROWS_AS(all_pairs(numbered({2})), dhp::Error);
}

TEST_CASE("sentence pairs: a random second sentence is from another part and never the true one") {
  const auto pairs = all_pairs(numbered({3, 4, 2, 2, 2, 2}), Pairing::first);
  std::set<std::int64_t> seen;
  for (std::int64_t index = 0; index < pairs.size(); ++index)
    for (std::int64_t epoch = 0; epoch < 50; ++epoch) {
      dhp::SampleRandom random(1, epoch, index, dhp::DataUse::pair);
      const auto second = pairs.random_second(index, random);
      seen.insert(second);
      CHECK(second != pairs.get(index).second);
      for (std::int64_t other = 0; other < pairs.size(); ++other)
        if (pairs.get(other).second == second)
          CHECK(pairs.get(other).part != pairs.get(index).part);
    }
  CHECK(static_cast<std::int64_t>(seen.size()) == pairs.size());  // each is drawn sometimes
}

TEST_CASE("sentence pairs: with one document a random second is any but the true one") {
  const examples::SentencePairs pairs(numbered({3}), {{0, 3}}, Pairing::next);
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    dhp::SampleRandom random(1, epoch, 0, dhp::DataUse::pair);
    CHECK(pairs.random_second(0, random) == 2);
  }
}

TEST_CASE("sentence pairs: long documents are cut into pieces that cover them") {
  for (const int sentences : {1, 2, 3, 5, 100, 1000, 20000}) {
    const auto text = numbered({sentences, 2, 1});
    const auto parts = examples::parts_of(*text);
    std::int64_t at = 0;
    for (const auto part : parts) {
      CHECK(part.first == at);
      CHECK(part.size() >= 1);
      CHECK(part.size() < 128);
      at = part.last;
    }
    CHECK(at == text->sentences());
    if (sentences >= 1000) CHECK(parts.size() >= 80);
  }
}

TEST_CASE("sentence pairs: training and held-out share no sentence and no random second") {
  for (const auto& documents :
       {std::vector<int>(300, 3), std::vector<int>{2000}, std::vector<int>{5, 1, 700, 2, 2, 9}}) {
    const auto text = numbered(documents);
    const auto split = examples::split_sentence_pairs(text, Pairing::next, 0.1, 7);
    std::set<std::int64_t> sides[2];
    int side = 0;
    for (const auto* pairs : {&split.train, &split.held_out}) {
      for (std::int64_t index = 0; index < pairs->size(); ++index) {
        sides[side].insert({pairs->get(index).first, pairs->get(index).second});
        dhp::SampleRandom random(1, 0, index, dhp::DataUse::pair);
        sides[side].insert(pairs->random_second(index, random));
      }
      ++side;
    }
    for (const auto sentence : sides[1]) CHECK(!sides[0].contains(sentence));
    const auto all = split.train.size() + split.held_out.size();
    CHECK(split.held_out.size() >= all / 10);
    CHECK(split.held_out.size() <= all / 5);
    // The first held-out samples come from all parts of the text.
    if (documents.size() == 300) {
      std::int64_t last = 0;
      for (std::int64_t index = 0; index < 20; ++index)
        last = std::max(last, split.held_out.get(index).second);
      CHECK(last > text->sentences() / 2);
    }
    const auto again = examples::split_sentence_pairs(text, Pairing::next, 0.1, 7);
    CHECK(list(again.held_out) == list(split.held_out));
    CHECK(list(examples::split_sentence_pairs(text, Pairing::next, 0.1, 8).held_out) !=
          list(split.held_out));
  }
  for (const double fraction : {1.0, -1.0, std::nan("")})
    CHECK_THROWS_WITH_AS(
        examples::split_sentence_pairs(numbered({9, 9}), Pairing::next, fraction, 0),
        Contains("a held-out fraction lies in [0, 1)"), dhp::Error);
  CHECK_THROWS_WITH_AS(examples::split_sentence_pairs(numbered({2, 2}), Pairing::next, 0.5, 0),
                       Contains("at least 2 are needed on each side"), dhp::Error);
}

TEST_CASE("sentence pairs: with a held-out fraction of 0 all pairs are for training") {
  const auto text = numbered({5, 1, 700, 2, 2, 9});
  const auto split = examples::split_sentence_pairs(text, Pairing::next, 0, 7);
  CHECK(split.held_out.size() == 0);
  auto trained = list(split.train);
  CHECK(trained != list(all_pairs(text)));  // in a random order
  std::sort(trained.begin(), trained.end());
  CHECK(trained == list(all_pairs(text)));
  // Without held-out pairs, a text of two pairs is enough.
  CHECK(examples::split_sentence_pairs(numbered({2, 2}), Pairing::next, 0, 0).train.size() == 2);
  CHECK_THROWS_AS((void)split.held_out.get(0), dhp::Error);
}

}  // namespace
