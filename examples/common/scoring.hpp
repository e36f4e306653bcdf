// What score_bert reads before any rank starts: the model's description, sentences as tokens. Compiled once
// (scoring.cpp), by no device's compiler.
#pragma once

#include "../bert/config.hpp"
#include "data.hpp"
#include "row_file.hpp"
#include "score_options.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace examples {

struct Scoring {
  std::shared_ptr<const PublishedBert> bert;  ///< its sequence length as asked for
  BertHead head{};                            ///< what is asked for
  dhp::LowRankOptions adapters{};             ///< no layers: none
  AnyBatcher sentences;
  std::vector<std::int64_t> rows_of;  ///< how many rows of the output each sentence has
  bool normalise = false;
  RowFileOptions output{};
  std::string description;
};

/// Throws where the model, the sentences and the options do not fit.
[[nodiscard]] Scoring prepare_scoring(const ScoreOptions& options);

}  // namespace examples
