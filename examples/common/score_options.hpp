// What score_bert takes on its command line. Parsing is compiled apart (score_options.cpp).
#pragma once

#include "options.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace examples {

struct ScoreOptions {
  RunOptions run{};         ///< layout, processes, precision, batches; run.load is the model
  std::string input;        ///< sentences: a file of lines, or .csv, .tsv, .jsonl
  std::string text_column;  ///< of the latter
  std::string output;       ///< .csv, .jsonl or .npy; empty: JSON lines on standard output
  std::string predict = "automatic";     ///< or "embeddings", "logits"
  std::optional<std::string> pooling{};  ///< "mean" or "first"; none: as the model says
  std::optional<bool> normalise{};       ///< none: as the model says
  std::int64_t sequence_length = 0;      ///< 0: as the model says
};

struct ParsedScore {
  ScoreOptions options;
  std::optional<int> exit_status;
};
[[nodiscard]] ParsedScore parse_score(int argc, char** argv, bool gpu);

}  // namespace examples
