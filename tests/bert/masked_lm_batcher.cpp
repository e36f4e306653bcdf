// BERT's micro-batches: names, types and shapes of the arrays that layers read, equal in all layouts.
#include <dhp/device/cpu.hpp>
#include <examples/bert/masked_lm.hpp>
#include <tests/support/test.hpp>

#include "text_fixture.hpp"

namespace {

using examples::MaskedLmBatcher;
using examples::MaskedLmOptions;
using examples::TokenLayout;
using Ids = std::vector<std::int32_t>;

constexpr std::int64_t length = 40;

MaskedLmBatcher batcher(TokenLayout layout, MaskedLmOptions options = {.sequence_length = length}) {
  return {all_pairs(some_text({.documents = 40})), examples::synthetic_vocabulary(512), options,
          layout};
}

const dhp::HostArray& side(const dhp::HostBatch& batch, const std::string& name) {
  for (const auto& [key, array] : batch.side)
    if (key == name) return array;
  dhp::fail("no side input ", name);
}
Ids ints(const dhp::HostBatch& batch, const std::string& name) {
  const auto values = side(batch, name).values<std::int32_t>();
  return {values.begin(), values.end()};
}
std::vector<std::int64_t> longs(const dhp::HostBatch& batch, const std::string& name) {
  const auto values = side(batch, name).values<std::int64_t>();
  return {values.begin(), values.end()};
}

const std::vector<std::int64_t> indices{3, 80, 4, 21, 0};

TEST_CASE("masked lm batches: arrays have the expected names, types, shapes and counts") {
  for (const auto layout : {TokenLayout::packed, TokenLayout::padded}) {
    const auto batch = batcher(layout).collate(indices, 1);
    const auto n = static_cast<std::int64_t>(indices.size());
    const auto rows = side(batch, "token_ids").shape()[0];
    const auto hidden = side(batch, "masked_rows").shape()[0];
    CHECK(batch.input.empty());
    CHECK(batch.side.size() == 10);
    for (const char* name : {"token_ids", "positions", "segments"})
      CHECK(side(batch, name).shape() == dhp::Shape{rows});
    CHECK(side(batch, "row_numbers").shape() == dhp::Shape{rows});
    CHECK(side(batch, "row_numbers").dtype() == dhp::DType::i64);
    CHECK(side(batch, "offsets").shape() == dhp::Shape{n + 1});
    for (const char* name : {"lengths", "first_rows", "next_labels"})
      CHECK(side(batch, name).shape() == dhp::Shape{n});
    CHECK(side(batch, "masked_labels").shape() == dhp::Shape{hidden});
    CHECK(hidden > 0);
    std::int64_t tokens = 0, pairs = 0;  // padding counts for neither
    for (const auto used : ints(batch, "lengths")) {
      tokens += used;
      pairs += used * used;
    }
    CHECK(
        batch.counts ==
        std::vector<std::pair<std::string, std::int64_t>>{
            {"masked_tokens", hidden}, {"samples", n}, {"tokens", tokens}, {"token_pairs", pairs}});
    CHECK(batch.rows_per_sample == length);
    const auto offsets = ints(batch, "offsets");
    CHECK(offsets.front() == 0);
    CHECK(offsets.back() == rows);
    CHECK(std::equal(offsets.begin(), offsets.end() - 1, ints(batch, "first_rows").begin()));
  }
}

TEST_CASE("masked lm batches: the fixed layout is the padded one plus masked rows with label -1") {
  const auto padded = batcher(TokenLayout::padded).collate(indices, 1);
  const auto fixed = batcher(TokenLayout::fixed).collate(indices, 1);
  CHECK(fixed.counts == padded.counts);
  CHECK(fixed.side.size() == padded.side.size());
  for (const auto& [name, array] : padded.side) {
    CAPTURE(name);
    if (name != "masked_rows" && name != "masked_labels") {
      CHECK(side(fixed, name) == array);
      continue;
    }
    auto filled = ints(padded, name);
    filled.resize(indices.size() * 6,
                  name == "masked_rows" ? 0 : -1);  // 15 % of 37 tokens are 5.55
    CHECK(ints(fixed, name) == filled);
  }
  CHECK(fixed.counts[0].second < 30);
  CHECK(ints(fixed, "token_ids")[0] == 2);  // so row 0 is not hidden
}

TEST_CASE("masked lm batches: fixed batches of equally many samples have equal shapes") {
  const auto of = batcher(TokenLayout::fixed);
  const auto shapes = [&](std::int64_t first, std::int64_t count, std::int64_t epoch) {
    std::vector<std::int64_t> chosen(static_cast<std::size_t>(count));
    std::iota(chosen.begin(), chosen.end(), first);
    std::vector<dhp::Shape> result;
    for (const auto& [name, array] : of.collate(chosen, epoch).side)
      result.push_back(array.shape());
    return result;
  };
  for (std::int64_t first = 0; first < 80; ++first)
    CHECK(shapes(first, 8, first) == shapes(0, 8, 0));
  CHECK(shapes(0, 1, 0) != shapes(0, 8, 0));
  CHECK(of.collate({}, 0).counts[0].second == 0);
}

TEST_CASE("masked lm batches: packed and padded rows hold the tokens of their samples") {
  for (const auto layout : {TokenLayout::packed, TokenLayout::padded}) {
    const auto of = batcher(layout);
    const auto batch = of.collate(indices, 1);
    const auto offsets = ints(batch, "offsets");
    std::size_t masked = 0;
    for (std::size_t n = 0; n < indices.size(); ++n) {
      const auto sample = of.sample(indices[n], 1);
      const auto tokens = sample.ids.size();
      const auto rows = layout == TokenLayout::padded ? static_cast<std::size_t>(length) : tokens;
      CHECK(ints(batch, "lengths")[n] == static_cast<std::int32_t>(tokens));
      CHECK(static_cast<std::size_t>(offsets[n + 1] - offsets[n]) == rows);
      for (std::size_t at = 0; at < rows; ++at) {
        const auto row = static_cast<std::size_t>(offsets[n]) + at;
        CHECK(ints(batch, "token_ids")[row] == (at < tokens ? sample.ids[at] : 0));
        CHECK(ints(batch, "positions")[row] == static_cast<std::int32_t>(at));
        CHECK(longs(batch, "row_numbers")[row] == static_cast<std::int64_t>(n * length + at));
        if (at < tokens)
          CHECK(ints(batch, "segments")[row] ==
                (static_cast<std::int64_t>(at) >= sample.second_segment ? 1 : 0));
      }
      for (std::size_t at = 0; at < sample.hidden.places.size(); ++at, ++masked) {
        CHECK(ints(batch, "masked_rows")[masked] == offsets[n] + sample.hidden.places[at]);
        CHECK(ints(batch, "masked_labels")[masked] == sample.hidden.labels[at]);
      }
      CHECK(ints(batch, "next_labels")[n] == sample.next_label);
    }
    CHECK(masked == ints(batch, "masked_rows").size());
  }
}

TEST_CASE("masked lm batches: a batch may have no hidden tokens or no samples") {
  Cpu cpu;
  const auto none = batcher(TokenLayout::packed, {.sequence_length = length, .hidden = 0});
  const auto batch = dhp::upload(cpu, none.collate(indices, 0), 0, {0, 5});
  CHECK(batch.at("masked_rows").shape() == dhp::Shape{0});
  CHECK(batch.count_of("masked_tokens") == 0);
  CHECK(ints(none.collate({}, 0), "offsets") == Ids{0});
}

TEST_CASE("masked lm batches: a bad index names the sample") {
  const std::vector<std::int64_t> bad{0, 99999};
  CHECK_THROWS_WITH_AS(batcher(TokenLayout::packed).collate(bad, 0),
                       Contains("sample 99999: no sample 99999 in a dataset of"), dhp::Error);
}

TEST_CASE("masked lm batches: uploaded row numbers start at the batch's place in the step") {
  Cpu cpu;
  const auto host = batcher(TokenLayout::packed).collate(indices, 1);
  const auto batch = dhp::upload(cpu, host, 2, {16, 21});
  auto expected = longs(host, "row_numbers");
  CHECK(expected.front() == 0);
  for (auto& number : expected) number += 16 * length;
  CHECK(batch.at("row_numbers").to_host<std::int64_t>(cpu) == expected);
}

}  // namespace
