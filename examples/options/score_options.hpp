// Options of score_bert, score_gpt and score_resnet50. Their parser is compiled separately (score_options.cpp).
#pragma once

#include "options.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace examples {

struct ScoreOptions {
  RunOptions run{};         ///< layout, processes, precision, batches; run.load is the model
  std::string input;        ///< sentences in lines, .csv, .tsv or .jsonl; or images
  std::string output;       ///< .csv, .jsonl or .npy; empty: JSON lines on standard output
  std::string text_column;  ///< column of a .csv, .tsv or .jsonl file
  // Options for sentences:
  std::string predict = "automatic";     ///< or "embeddings", "logits"
  std::optional<std::string> pooling{};  ///< "mean" or "first"; none: the model's own
  std::optional<bool> normalize{};       ///< none: the model's own
  std::int64_t sequence_length = 0;      ///< 0: the model's own
  // Options for a decoder:
  std::vector<std::string> prompts{};  ///< texts to continue, instead of an input
  std::int64_t tokens = 50;            ///< maximum tokens to generate
  double temperature = 0;              ///< 0: the likeliest token
  std::int64_t top_k = 0;              ///< number of tokens to choose from; 0: all
  bool cache = true;                   ///< caches keys and values
  double top_p = 1;                    ///< chooses from the likeliest tokens with this total share
};

[[nodiscard]] Parsed<ScoreOptions> parse_score_bert(int argc, char** argv, bool gpu);
[[nodiscard]] Parsed<ScoreOptions> parse_score_gpt(int argc, char** argv, bool gpu);
[[nodiscard]] Parsed<ScoreOptions> parse_score_resnet(int argc, char** argv, bool gpu);

}  // namespace examples
