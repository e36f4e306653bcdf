// Documents as samples of a causal decoder, and the choice of tokens.
#include <examples/gpt/document_samples.hpp>
#include <examples/gpt/sampling.hpp>
#include <tests/support/test.hpp>

using namespace examples;

namespace {

using Ints = std::vector<std::int32_t>;

template <class T>
[[nodiscard]] std::vector<T> side(const dhp::HostBatch& batch, const std::string& name) {
  for (const auto& [key, array] : batch.side)
    if (key == name) {
      const auto values = array.template values<T>();
      return {values.begin(), values.end()};
    }
  FAIL("no side input " << name);
  return {};
}

[[nodiscard]] DocumentSamples sequences(std::int64_t length) {
  auto text = std::make_shared<TokenText>();
  for (const auto& document : {Ints{0, 1, 2}, Ints{0, 3, 4, 5, 6}, Ints{0, 7}}) {
    text->add_sentence(document);
    text->end_document();
  }
  return DocumentSamples(text, 9, length);
}

TEST_CASE("sequences: positions and attention stay within documents; last tokens predict the end") {
  const auto all = sequences(4);
  CHECK(all.size() == 3);
  const std::vector<std::int64_t> wanted{1, 0};
  const auto batch = all.collate(wanted, 0);
  CHECK(side<std::int32_t>(batch, "token_ids") == Ints{3, 4, 5, 6, 0, 1, 2, 0});
  CHECK(side<std::int32_t>(batch, "labels") == Ints{4, 5, 6, 9, 1, 2, 9, 3});
  CHECK(side<std::int32_t>(batch, "positions") == Ints{0, 1, 2, 3, 0, 1, 2, 0});
  CHECK(side<std::int32_t>(batch, "offsets") == Ints{0, 4, 7, 8});
  CHECK(side<std::int32_t>(batch, "lengths") == Ints{4, 3, 1});
  CHECK(side<std::int32_t>(batch, "predicted_rows") == Ints{3, 6, 7});
  CHECK(side<std::int64_t>(batch, "row_numbers") ==
        std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(batch.rows_per_sample == 4);
  CHECK(batch.counts == decltype(batch.counts){{"tokens", 8}, {"token_pairs", 10 + 6 + 1}});
  const std::vector<std::int64_t> last{2};
  const auto rest = all.collate(last, 0);
  CHECK(side<std::int32_t>(rest, "token_ids") == Ints{0, 7});
  CHECK(side<std::int32_t>(rest, "labels") == Ints{7, 9});
}

TEST_CASE("sequences: a split has each sample in one part") {
  const auto [train, held_out] = sequences(2).split(0.4, 3);
  CHECK(train.size() == 3);
  CHECK(held_out.size() == 2);
  std::multiset<std::int32_t> tokens;
  for (const auto& part : {train, held_out})
    for (std::int64_t at = 0; at < part.size(); ++at)
      for (const auto token : side<std::int32_t>(part.collate(std::vector{at}, 0), "token_ids"))
        tokens.insert(token);
  CHECK(tokens == std::multiset<std::int32_t>{0, 0, 0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(sequences(2).split(0, 3).second.size() == 0);
  CHECK_THROWS_AS((void)sequences(100).split(0.1, 3), dhp::Error);
}

TEST_CASE("sampling: takes the likeliest token, or draws among the likeliest") {
  const std::vector<double> scores{0, std::log(4.0), std::log(2.0), std::log(4.0), std::log(1.0)};
  CHECK(chosen_token(scores, {}, 0.9) == 1);  // of equal scores, the first
  const auto shares = [&](const Sampling& sampling) {
    std::map<std::int32_t, int> count;
    for (int at = 0; at < 1200; ++at) ++count[chosen_token(scores, sampling, (at + 0.5) / 1200)];
    return count;
  };
  using Counts = std::map<std::int32_t, int>;
  CHECK(shares({.temperature = 1}) == Counts{{0, 100}, {1, 400}, {2, 200}, {3, 400}, {4, 100}});
  CHECK(shares({.temperature = 0.5, .top_k = 3}) == Counts{{1, 533}, {2, 133}, {3, 534}});
  CHECK(shares({.temperature = 1, .top_k = 2}) == Counts{{1, 600}, {3, 600}});
  CHECK(shares({.temperature = 1, .top_p = 0.6}) == Counts{{1, 600}, {3, 600}});
  CHECK(shares({.temperature = 1, .top_p = 0.7}) == Counts{{1, 480}, {2, 240}, {3, 480}});
  CHECK(shares({.temperature = 1, .top_p = 0}) == Counts{{1, 1200}});
  for (const std::vector<double>& broken : {{std::nan(""), std::nan("")},
                                            std::vector<double>{1, 0, std::nan("")},
                                            {-INFINITY, -INFINITY}})
    CHECK_THROWS_AS((void)chosen_token(broken, {}, 0), dhp::Error);
}

}  // namespace
