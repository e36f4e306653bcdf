// The sizes of a BERT, and its kind of head.
#pragma once

#include <dhp/core/names.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace examples {

struct BertConfig {
  int layers = 2;
  std::int64_t hidden = 128;
  int heads = 2;
  std::int64_t vocabulary = 30522;
  std::int64_t positions = 512;
  std::int64_t sequence_length = 128;
  double dropout = 0.1;
  bool recompute = false;       ///< keep only inputs of half blocks; backward recomputes the rest
  bool exchange_heads = false;  ///< attention exchanges heads on a context axis
  bool share_rows = false;      ///< shard rows on the tensor axis between split layers
  std::int64_t inner = 0;       ///< width of the feed-forward layers; 0: 4 * hidden
  std::int64_t segments = 2;
  bool next_sentence = true;  ///< the masked-words head comes with a next-sentence head
  double epsilon = 1e-12;     ///< epsilon of the layer norms

  [[nodiscard]] std::int64_t intermediate() const { return inner > 0 ? inner : 4 * hidden; }
};

[[nodiscard]] inline std::vector<std::pair<std::string_view, BertConfig>> bert_presets() {
  return {{"tiny", {.layers = 2, .hidden = 128, .heads = 2}},
          {"mini", {.layers = 4, .hidden = 256, .heads = 4}},
          {"small", {.layers = 4, .hidden = 512, .heads = 8}},
          {"base", {.layers = 12, .hidden = 768, .heads = 12}},
          {"large", {.layers = 24, .hidden = 1024, .heads = 16}}};
}
[[nodiscard]] inline BertConfig bert_preset(std::string_view name) {
  return dhp::detail::find_named(bert_presets(), name, "preset");
}

enum class BertHead { none, masked_words, classes };

/// A published model as config.json describes it.
struct PublishedBert {
  BertConfig config{};
  BertHead head = BertHead::none;
  std::vector<std::string> labels{};  ///< names of the classes
  bool tied = true;                   ///< the decoder shares the weight of the word embedding
};

/// Counts that determine the FLOP of a BERT, for any number of samples.
struct BertWork {
  double tokens = 0;       ///< tokens without padding
  double token_pairs = 0;  ///< pairs of tokens that attend to each other, within samples
  double masked = 0;       ///< tokens to predict
  double samples = 0;
  double classes = 2;  ///< classes that the model predicts
};
/// Returns the multiplications and additions in a forward pass's matrix products.
[[nodiscard]] inline double bert_forward_flop(const BertConfig& config, const BertWork& work) {
  const auto hidden = static_cast<double>(config.hidden);
  const auto inner = static_cast<double>(config.intermediate());
  const double block =
      2 * work.tokens * (4 * hidden * hidden + 2 * hidden * inner) + 4 * work.token_pairs * hidden;
  const double heads =
      2 * work.masked * (hidden * hidden + hidden * static_cast<double>(config.vocabulary)) +
      2 * work.samples * (hidden * hidden + hidden * work.classes);
  return config.layers * block + heads;
}

}  // namespace examples
