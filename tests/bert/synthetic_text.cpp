// Synthetic text is a function of its seed, stays in its vocabulary, and has a structure that can be learned.
#include <examples/bert/synthetic_text.hpp>
#include <tests/support/test.hpp>

TEST_CASE("synthetic text: sizes, sentence lengths and ids follow the options") {
  const examples::SyntheticTextOptions options{
      .documents = 50, .sentences = 3, .vocabulary_size = 69};
  const auto text = examples::synthetic_text(options);
  CHECK(text.size() == 50);
  CHECK(text.sentences() == 150);
  std::size_t shortest = 99;
  std::size_t longest = 0;
  for (std::int64_t number = 0; number < text.sentences(); ++number) {
    shortest = std::min(shortest, text.sentence(number).size());
    longest = std::max(longest, text.sentence(number).size());
  }
  CHECK(shortest == 6);
  CHECK(longest == 24);
  for (const auto id : text.items()) REQUIRE((id >= 5 && id < 69));
  CHECK(examples::synthetic_vocabulary(69).token(5) == "w0");
}

TEST_CASE("synthetic text: a seed repeats its text, and more documents keep the first ones") {
  const auto some = examples::synthetic_text({.documents = 20});
  const auto more = examples::synthetic_text({.documents = 30});
  CHECK(std::equal(some.items().begin(), some.items().end(), more.items().begin()));
  CHECK(examples::synthetic_text({.documents = 20}) == some);
  CHECK(examples::synthetic_text({.documents = 20, .seed = 1}) != some);
}

TEST_CASE("synthetic text: a document keeps to one topic, a word mostly decides the next") {
  const auto text =
      examples::synthetic_text({.documents = 400, .vocabulary_size = 85, .topics = 8});
  std::map<std::int32_t, std::map<std::int32_t, int>> next;
  int pairs = 0;
  for (std::int64_t document = 0; document < text.size(); ++document) {
    const auto range = text.sentences_of(document);
    const auto topic = (text.sentence(range.first)[0] - 5) / 10;
    for (auto number = range.first; number < range.last; ++number) {
      const auto sentence = text.sentence(number);
      for (const auto id : sentence) REQUIRE((id - 5) / 10 == topic);
      for (std::size_t at = 1; at < sentence.size(); ++at) {
        ++next[sentence[at - 1]][sentence[at]];
        ++pairs;
      }
    }
  }
  int guessed = 0;
  for (const auto& [word, counts] : next) {
    const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
    guessed += std::max_element(counts.begin(), counts.end(), less)->second;
  }
  const double share = static_cast<double>(guessed) / pairs;
  CHECK(share > 0.78);
  CHECK(share < 0.88);
}

TEST_CASE("synthetic text: refuses a vocabulary without two words for each topic") {
  CHECK_THROWS_WITH_AS(examples::synthetic_text({.vocabulary_size = 20}),
                       Contains("21 or more would be right"), dhp::Error);
}
