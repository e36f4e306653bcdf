// Options of score_bert, score_gpt and score_resnet50. Parsing is compiled apart
// (score_options.cpp).
#pragma once

#include "options.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace examples {

struct ScoreOptions {
  RunOptions run{};         ///< layout, processes, precision, batches; run.load is the model
  std::string input;        ///< sentences: a file of lines, or .csv, .tsv, .jsonl; or images
  std::string output;       ///< .csv, .jsonl or .npy; empty: JSON lines on standard output
  std::string text_column;  ///< of a .csv, .tsv or .jsonl file
  // For sentences:
  std::string predict = "automatic";     ///< or "embeddings", "logits"
  std::optional<std::string> pooling{};  ///< "mean" or "first"; none: as the model says
  std::optional<bool> normalise{};       ///< none: as the model says
  std::int64_t sequence_length = 0;      ///< 0: as the model says
  // For a decoder:
  std::vector<std::string> prompts{};  ///< texts to go on with, instead of an input
  std::int64_t tokens = 50;            ///< to generate at most
  double temperature = 0;              ///< 0: the likeliest token
  std::int64_t top_k = 0;              ///< the number of tokens that are chosen from; 0: all
  bool cache = true;                   ///< of keys and values
  double top_p = 1;                    ///< the likeliest tokens of this share are chosen from
};

[[nodiscard]] Parsed<ScoreOptions> parse_score_bert(int argc, char** argv, bool gpu);
[[nodiscard]] Parsed<ScoreOptions> parse_score_gpt(int argc, char** argv, bool gpu);
[[nodiscard]] Parsed<ScoreOptions> parse_score_resnet(int argc, char** argv, bool gpu);

}  // namespace examples
