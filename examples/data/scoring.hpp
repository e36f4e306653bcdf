// Input that score_bert, score_gpt and score_resnet50 read before any rank starts: the model's description, and what is
// scored. Compiled once (sentence_scoring.cpp, gpt_text.cpp, image_scoring.cpp), by no device's compiler.
#pragma once

#include "../bert/config.hpp"
#include "../options/score_options.hpp"
#include "../report/row_file.hpp"
#include "data.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace examples {

struct SavedResNet;  // saved_resnet.hpp

struct Scoring {
  dhp::LowRankOptions adapters{};  ///< if it names no layers, the model has no adapters
  AnyBatcher samples;
  std::vector<std::int64_t> rows_of;  ///< how many rows of the output each sample has
  std::string what = "sentences";     ///< samples are
  bool normalise = false;
  RowFileOptions output{};
  std::string description;
};

struct BertScoring {
  Scoring scoring;
  std::shared_ptr<const PublishedBert> bert;  ///< its sequence length as asked for
  BertHead head{};                            ///< what is asked for
};
struct GptScoring {
  dhp::LowRankOptions adapters{};  ///< if it names no layers, the model has no adapters
  GptConfig config{};
  AnyBatcher samples;      ///< the text of --input; of prompts the first, to know the shapes
  std::int64_t bytes = 0;  ///< of that text
  std::vector<std::vector<std::int32_t>> prompts{};
  std::function<std::string(const std::vector<std::int32_t>&)> decode{};
  std::string description;
};
struct ImageScoring {
  Scoring scoring;
  std::shared_ptr<const SavedResNet> resnet;
};

/// Throws where the model, the sentences and the options do not fit.
[[nodiscard]] BertScoring prepare_sentences(const ScoreOptions& options);
/// Throws where the model, the text or the prompts, and the options do not fit.
[[nodiscard]] GptScoring prepare_gpt(const ScoreOptions& options);
/// Throws where the model and the images do not fit.
[[nodiscard]] ImageScoring prepare_images(const ScoreOptions& options);

}  // namespace examples
