// The unigram cross-entropy: known values, and what it says of synthetic text.
#include <dhp/data/unigram.hpp>

#include "text_fixture.hpp"

#include <doctest/doctest.h>

#include <cmath>

namespace {

TEST_CASE("unigram: add-one smoothing by hand") {
  dhp::Unigram unigram(4);
  CHECK(unigram.loss_of(2) == doctest::Approx(std::log(4.0)));
  unigram.add(2);
  unigram.add(2);
  CHECK(unigram.loss_of(2) == doctest::Approx(std::log(6.0 / 3.0)));
  CHECK(unigram.loss_of(0) == doctest::Approx(std::log(6.0)));
  CHECK_THROWS(unigram.add(4));
  CHECK_THROWS(unigram.loss_of(-1));
}

TEST_CASE("unigram: over the hidden tokens of the held-out samples") {
  const auto text = dhp_test::some_text({.documents = 2000, .vocabulary_size = 69, .topics = 4});
  const auto split = dhp::split_sentence_pairs(text, dhp::Pairing::next, 0.1, 0);
  const auto vocabulary = dhp::synthetic_vocabulary(69);
  const dhp::MaskedLmOptions options{.sequence_length = 32};
  const auto unigram = dhp::unigram_of(split.train, vocabulary, options);
  // By hand: the mean of -log p over labels.
  double sum = 0;
  double count = 0;
  for (std::int64_t index = 0; index < 50; ++index)
    for (const auto label :
         dhp::masked_lm_sample(split.held_out, vocabulary, options, index, 0).hidden.labels) {
      sum += unigram.loss_of(label);
      ++count;
    }
  CHECK(dhp::unigram_cross_entropy(unigram, split.held_out, vocabulary, options, 50) ==
        doctest::Approx(sum / count));
  // Near the entropy of the words, which is below that of 64 equal ones.
  const double whole = dhp::unigram_cross_entropy(unigram, split.held_out, vocabulary, options);
  CHECK(whole < std::log(64.0));
  CHECK(whole > 0.8 * std::log(64.0));
  const dhp::Unigram ignorant(69);
  CHECK(dhp::unigram_cross_entropy(ignorant, split.held_out, vocabulary, options) ==
        doctest::Approx(std::log(69.0)));
}

TEST_CASE("unigram: counts both sentences of each pair, without what does not fit") {
  dhp::TokenText text;
  for (int document = 0; document < 2; ++document) {
    text.add_sentence(std::vector<std::int32_t>{5, 5, 5, 1});
    text.add_sentence(std::vector<std::int32_t>{6});
    text.end_document();
  }
  const auto pairs = dhp_test::all_pairs(std::make_shared<const dhp::TokenText>(std::move(text)));
  const auto vocabulary = dhp::synthetic_vocabulary(8);
  const auto whole = dhp::unigram_of(pairs, vocabulary, {});  // 5: 6, 6: 2, [UNK] never
  CHECK(whole.loss_of(5) == doctest::Approx(std::log(16.0 / 7.0)));
  CHECK(whole.loss_of(1) == doctest::Approx(std::log(16.0)));
  const auto cut = dhp::unigram_of(pairs, vocabulary, {.sequence_length = 6});  // 5 5 [SEP] 6
  CHECK(cut.loss_of(5) == doctest::Approx(std::log(14.0 / 5.0)));
}

}  // namespace
