// Samples of masked language modeling: their form, the statistics of hidden tokens, whole words. They depend only on
// seed, epoch and index.
#include <examples/bert/masked_lm.hpp>
#include <tests/support/test.hpp>

#include "text_fixture.hpp"

namespace {

using examples::MaskedLmOptions;

struct Corpus {
  examples::SentencePairs pairs = all_pairs(some_text({.documents = 1000}));
  examples::Vocabulary vocabulary = examples::synthetic_vocabulary(512);
  [[nodiscard]] examples::MaskedLmSample sample(const MaskedLmOptions& options, std::int64_t index,
                                                std::int64_t epoch = 0) const {
    return examples::masked_lm_sample(pairs, vocabulary, options, index, epoch);
  }
};

// Puts the hidden tokens back.
std::vector<std::int32_t> restored(const examples::MaskedLmSample& sample) {
  auto tokens = sample.ids;
  for (std::size_t at = 0; at < sample.hidden.places.size(); ++at)
    tokens[static_cast<std::size_t>(sample.hidden.places[at])] = sample.hidden.labels[at];
  return tokens;
}

TEST_CASE("masked lm: a sample is [CLS] A [SEP] B [SEP], shortened to the sequence length") {
  const Corpus corpus;
  for (const std::int64_t length : {5, 6, 16, 31, 128}) {
    const MaskedLmOptions options{.sequence_length = length, .seed = 3};
    for (std::int64_t index = 0; index < 300; ++index) {
      const auto sample = corpus.sample(options, index);
      const auto tokens = restored(sample);
      const auto second = static_cast<std::size_t>(sample.second_segment);
      const auto pair = corpus.pairs.get(index);
      const auto a = corpus.pairs.tokens(pair.first);
      REQUIRE(static_cast<std::int64_t>(tokens.size()) <= length);
      REQUIRE(tokens.size() >= 5);
      CHECK(tokens.front() == 2);
      CHECK(tokens.back() == 3);
      CHECK(tokens[second - 1] == 3);
      CHECK(std::count(tokens.begin(), tokens.end(), 3) == 2);
      CHECK(std::equal(tokens.begin() + 1, tokens.begin() + sample.second_segment - 1, a.begin()));
      if (sample.next_label == 0) {
        const auto b = corpus.pairs.tokens(pair.second);
        CHECK(std::equal(tokens.begin() + sample.second_segment, tokens.end() - 1, b.begin()));
        const auto whole = static_cast<std::int64_t>(a.size() + b.size() + 3);
        CHECK(static_cast<std::int64_t>(tokens.size()) == std::min(length, whole));
      }
    }
  }
}

TEST_CASE("masked lm: the longer sentence is shortened first, and keeps an odd token") {
  for (std::int64_t room = 2; room < 12; ++room)
    for (std::int64_t a = 1; a < 15; ++a)
      for (std::int64_t b = 1; b < 15; ++b) {
        std::int64_t first = a;
        std::int64_t second = b;
        examples::truncate_pair(room, first, second);
        std::int64_t slow_a = a;
        std::int64_t slow_b = b;
        while (slow_a + slow_b > room) {
          const bool cuts_first = slow_a == slow_b ? a <= b : slow_a > slow_b;
          --(cuts_first ? slow_a : slow_b);
        }
        CHECK(first == slow_a);
        CHECK(second == slow_b);
      }
}

TEST_CASE("masked lm: 15 % of tokens are hidden: 80 % as [MASK], 10 % random, 10 % unchanged") {
  const Corpus corpus;
  const MaskedLmOptions options{.seed = 11};
  double candidates = 0, hidden = 0, masks = 0, same = 0, random = 0, random_next = 0, samples = 0;
  std::map<std::int64_t, int> place_counts;
  for (std::int64_t epoch = 0; epoch < 4; ++epoch)
    for (std::int64_t index = 0; index < corpus.pairs.size(); ++index) {
      const auto sample = corpus.sample(options, index, epoch);
      const double words = static_cast<double>(sample.ids.size()) - 3;
      const auto count = static_cast<double>(sample.hidden.places.size());
      CHECK(std::abs(count - 0.15 * words) < 1);  // rounded up or down
      candidates += words;
      hidden += count;
      random_next += sample.next_label;
      samples += 1;
      std::int64_t before = 0;
      for (std::size_t at = 0; at < sample.hidden.places.size(); ++at) {
        const auto place = sample.hidden.places[at];
        const auto token = sample.ids[static_cast<std::size_t>(place)];
        const auto label = sample.hidden.labels[at];
        REQUIRE(place > before);
        before = place;
        ++place_counts[place];
        REQUIRE(!corpus.vocabulary.is_special(label));
        masks += token == 4 ? 1 : 0;
        same += token == label ? 1 : 0;
        random += token != 4 && token != label ? 1 : 0;
        REQUIRE((token == 4 || !corpus.vocabulary.is_special(token)));
      }
    }
  REQUIRE(samples == 12000);
  CHECK(hidden / candidates == Approx(0.15).epsilon(0.01));
  CHECK(masks / hidden == Approx(0.80).epsilon(0.01));
  CHECK(random / hidden == Approx(0.10 * 506 / 507).epsilon(0.03));
  CHECK(same / hidden == Approx(0.10 + 0.10 / 507).epsilon(0.03));
  CHECK(random_next / samples == Approx(0.5).epsilon(0.03));
  // Every sample has the first words of A, so they are hidden equally often.
  for (std::int64_t place = 1; place <= 6; ++place)
    CHECK(place_counts[place] / samples == Approx(0.15).epsilon(0.08));
}

TEST_CASE("masked lm: no sample hides more tokens than max_hidden(), and many reach it") {
  CHECK(examples::max_hidden({}) == 19);  // of 125 tokens
  CHECK(examples::max_hidden({.sequence_length = 512}) == 77);
  CHECK(examples::max_hidden({.hidden = 0}) == 0);
  CHECK(examples::max_hidden({.hidden = 1}) == 125);
  CHECK(examples::max_hidden({.whole_words = true}) == 125);
  const auto vocabulary = examples::synthetic_vocabulary(512);
  int reached = 0;
  for (const double share : {0.05, 0.15, 0.3})
    for (std::int64_t candidates = 2; candidates <= 200; ++candidates) {
      const MaskedLmOptions options{.sequence_length = candidates + 3, .hidden = share};
      const auto most = examples::max_hidden(options);
      for (std::int64_t index = 0; index < 20; ++index) {
        std::vector<std::int32_t> tokens(static_cast<std::size_t>(candidates), 100);
        dhp::SampleRandom random(1, candidates, index, dhp::DataUse::mask);
        const auto result = examples::hide_tokens(tokens, vocabulary, options, random);
        const auto count = static_cast<std::int64_t>(result.places.size());
        REQUIRE(count <= most);
        REQUIRE(count >= most - 1);
        reached += count == most ? 1 : 0;
      }
    }
  CHECK(reached > 3 * 199 * 20 / 3);
}

TEST_CASE("masked lm: whole-word masking hides all pieces of a word and 15 % of the tokens") {
  // The words have 1, 2 and 4 pieces.
  const examples::Vocabulary vocabulary(
      {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "##c"});
  std::vector<std::int32_t> sentence{2};
  for (int round = 0; round < 6; ++round) sentence.insert(sentence.end(), {5, 5, 6, 5, 6, 7, 7, 1});
  sentence.push_back(3);
  const auto word_of = [&](std::size_t place) {
    while (sentence[place] == 6 || sentence[place] == 7) --place;
    return place;
  };
  double hidden = 0;
  double partly = 0;
  const int samples = 20000;
  for (std::int64_t index = 0; index < samples; ++index) {
    auto tokens = sentence;
    dhp::SampleRandom random(1, 0, index, dhp::DataUse::mask);
    const auto result = examples::hide_tokens(
        tokens, vocabulary, {.as_mask = 1, .as_random = 0, .whole_words = true}, random);
    hidden += static_cast<double>(result.places.size());
    for (const auto place : result.places)
      REQUIRE(!vocabulary.is_special(sentence[static_cast<std::size_t>(place)]));
    for (std::size_t place = 0; place < tokens.size(); ++place)
      partly += (tokens[place] == 4) != (tokens[word_of(place)] == 4) ? 1 : 0;
  }
  CHECK(partly == 0);
  CHECK(hidden / samples == Approx(0.15 * 42).epsilon(0.01));
}

TEST_CASE("masked lm: the same seed and epoch repeat a sample, others change it") {
  const Corpus corpus;
  int changed_by_epoch = 0;
  int changed_by_seed = 0;
  for (std::int64_t index = 0; index < 100; ++index) {
    const auto tokens = corpus.sample({.seed = 5}, index, 2).ids;
    CHECK(tokens == corpus.sample({.seed = 5}, index, 2).ids);
    changed_by_epoch += tokens == corpus.sample({.seed = 5}, index, 3).ids ? 0 : 1;
    changed_by_seed += tokens == corpus.sample({.seed = 6}, index, 2).ids ? 0 : 1;
  }
  CHECK(changed_by_epoch > 90);
  CHECK(changed_by_seed > 90);
}

TEST_CASE("unigram: losses with add-one smoothing match values computed by hand") {
  examples::Unigram unigram(4);
  CHECK(unigram.loss_of(2) == Approx(std::log(4.0)));
  unigram.add(2);
  unigram.add(2);
  CHECK(unigram.loss_of(2) == Approx(std::log(6.0 / 3.0)));
  CHECK(unigram.loss_of(0) == Approx(std::log(6.0)));
  CHECK_THROWS(unigram.add(4));
  CHECK_THROWS(unigram.loss_of(-1));
}

TEST_CASE("unigram: the cross-entropy averages over the hidden tokens of held-out samples") {
  const auto text = some_text({.documents = 2000, .vocabulary_size = 69, .topics = 4});
  const auto split = examples::split_sentence_pairs(text, examples::Pairing::next, 0.1, 0);
  const auto vocabulary = examples::synthetic_vocabulary(69);
  const examples::MaskedLmOptions options{.sequence_length = 32};
  const auto unigram = examples::unigram_of(split.train, vocabulary, options);
  // The expected loss is the mean of -log p over the labels.
  double sum = 0;
  double count = 0;
  for (std::int64_t index = 0; index < 50; ++index)
    for (const auto label :
         examples::masked_lm_sample(split.held_out, vocabulary, options, index, 0).hidden.labels) {
      sum += unigram.loss_of(label);
      ++count;
    }
  CHECK(examples::unigram_cross_entropy(unigram, split.held_out, vocabulary, options, 50) ==
        Approx(sum / count));
  // The loss is near the entropy of the words, which is below that of 64 equally frequent ones.
  const double whole =
      examples::unigram_cross_entropy(unigram, split.held_out, vocabulary, options);
  CHECK(whole < std::log(64.0));
  CHECK(whole > 0.8 * std::log(64.0));
  const examples::Unigram ignorant(69);
  CHECK(examples::unigram_cross_entropy(ignorant, split.held_out, vocabulary, options) ==
        Approx(std::log(69.0)));
}

TEST_CASE("unigram: counts both sentences of each pair after truncation, without [UNK]") {
  examples::TokenText text;
  for (int document = 0; document < 2; ++document) {
    text.add_sentence(std::vector<std::int32_t>{5, 5, 5, 1});
    text.add_sentence(std::vector<std::int32_t>{6});
    text.end_document();
  }
  const auto pairs = all_pairs(std::make_shared<const examples::TokenText>(std::move(text)));
  const auto vocabulary = examples::synthetic_vocabulary(8);
  const auto whole = examples::unigram_of(pairs, vocabulary, {});  // 6 times 5, 2 times 6, no [UNK]
  CHECK(whole.loss_of(5) == Approx(std::log(16.0 / 7.0)));
  CHECK(whole.loss_of(1) == Approx(std::log(16.0)));
  const auto cut = examples::unigram_of(pairs, vocabulary, {.sequence_length = 6});  // 5 5 [SEP] 6
  CHECK(cut.loss_of(5) == Approx(std::log(14.0 / 5.0)));
}

}  // namespace
