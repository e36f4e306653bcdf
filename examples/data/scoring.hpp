// Loads the input of score_bert, score_gpt and score_resnet50 before any rank starts: the model's description and the
// samples. The functions are in sentence_scoring.cpp, gpt_text.cpp and image_scoring.cpp, which use no device.
#pragma once

#include "../bert/config.hpp"
#include "../options/options.hpp"
#include "../report/row_file.hpp"
#include "data.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace examples {

struct SavedResNet;  // in saved_resnet.hpp

/// A saved model and its samples.
struct ScoredModel {
  dhp::LowRankOptions adapters{};  ///< without layer names there are no adapters
  AnyBatcher samples{};
  std::string description{};
};

/// Samples that give rows of output.
struct RowScoring : ScoredModel {
  std::vector<std::int64_t> rows_of{};  ///< how many output rows each sample has
  std::vector<std::int64_t> numbers{};  ///< each sample's number in the input; empty: 1, 2, ...
  std::string what = "sentences";       ///< the samples' name in messages
  bool normalize = false;
  RowFileOptions output{};
};
struct BertScoring : RowScoring {
  PublishedBert bert{};  ///< model, with the requested sequence length
  BertHead head{};       ///< requested head
};
struct ImageScoring : RowScoring {
  std::shared_ptr<const SavedResNet> resnet{};
};
/// samples: the text of --input or, with prompts, the first prompt, which shows the shapes.
struct GptScoring : ScoredModel {
  GptConfig config{};
  std::int64_t bytes = 0;  ///< size of the text
  std::vector<std::vector<std::int32_t>> prompts{};
  std::function<std::string(const std::vector<std::int32_t>&)> decode{};
};

/// Throws if the model, the sentences and the options do not fit together.
[[nodiscard]] BertScoring prepare_sentences(const ScoreOptions& options);
/// Throws if the model, the text or prompts, and the options do not fit together.
[[nodiscard]] GptScoring prepare_gpt(const ScoreOptions& options);
/// Throws if the model and the images do not fit together.
[[nodiscard]] ImageScoring prepare_images(const ScoreOptions& options);

}  // namespace examples
