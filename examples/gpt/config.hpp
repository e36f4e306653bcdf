// The sizes of a causal decoder: GPT-2's shape, or Llama's.
#pragma once

#include <dhp/core/names.hpp>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace examples {

struct GptConfig {
  int layers = 2;
  std::int64_t hidden = 128;
  int heads = 2;
  bool llama = false;       ///< RMSNorm, rotary positions and SwiGLU, no biases; else GPT-2's parts
  int key_heads = 0;        ///< 0: as many as heads
  std::int64_t inner = 0;   ///< width of the feed-forward parts; 0: 4 * hidden
  bool tied = true;         ///< the head and the embedding share a weight
  bool exact_gelu = false;  ///< exact GELU; else GPT-2's tanh form
  double epsilon = 1e-5;    ///< epsilon of the norms
  double rotary_base = 10000;
  std::int64_t vocabulary = 50257;
  std::int64_t positions = 1024;
  std::int64_t sequence_length = 128;
  double dropout = 0.1;
  bool exchange_heads = false;  ///< attention exchanges heads on a context axis
  bool recompute = false;       ///< keep only inputs of half blocks; backward recomputes the rest
  bool share_rows = false;      ///< shard rows on the tensor axis between split layers
  std::int32_t begin = 0;       ///< token before a document
  std::vector<std::int32_t> end{};  ///< tokens that end a document; training uses the first

  [[nodiscard]] std::int64_t intermediate() const { return inner > 0 ? inner : 4 * hidden; }
  [[nodiscard]] int heads_of_keys() const { return key_heads > 0 ? key_heads : heads; }
  [[nodiscard]] bool ends(std::int32_t token) const {
    return std::ranges::find(end, token) != end.end();
  }
};

[[nodiscard]] inline std::vector<std::pair<std::string_view, GptConfig>> gpt_presets() {
  const auto llama = [](int layers, std::int64_t hidden, int heads, int keys, std::int64_t inner) {
    GptConfig config{layers, hidden, heads, true, keys, inner};
    config.dropout = 0;
    return config;
  };
  return {{"tiny", {.layers = 2, .hidden = 128, .heads = 2}},
          {"mini", {.layers = 4, .hidden = 256, .heads = 4}},
          {"small", {.layers = 12, .hidden = 768, .heads = 12}},  // GPT-2, with its tokenizer
          {"medium", {.layers = 24, .hidden = 1024, .heads = 16}},
          {"llama-tiny", llama(2, 128, 4, 2, 384)},
          {"llama-mini", llama(4, 256, 8, 4, 768)},
          {"llama-small", llama(12, 768, 12, 4, 2048)}};
}
[[nodiscard]] inline GptConfig gpt_preset(std::string_view name) {
  return dhp::detail::find_named(gpt_presets(), name, "preset");
}

/// Returns multiplications and additions in a forward pass's matrix products. pairs: token pairs in attention.
[[nodiscard]] inline double gpt_forward_flop(const GptConfig& config, double tokens, double pairs) {
  const auto hidden = static_cast<double>(config.hidden);
  const double keys = hidden * config.heads_of_keys() / config.heads;
  const double inner = (config.llama ? 3 : 2) * static_cast<double>(config.intermediate());
  const double block = 2 * tokens * hidden * (2 * hidden + 2 * keys + inner) + 4 * pairs * hidden;
  return config.layers * block + 2 * tokens * hidden * static_cast<double>(config.vocabulary);
}

}  // namespace examples
