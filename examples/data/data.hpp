// A trainer's input. AnyBatcher is one type for the batchers of all datasets, so that the training run is compiled only
// once. The functions that load the trainers' data are in images.cpp, text.cpp and other sources of this folder.
#pragma once

#include <dhp/data/collate.hpp>

#include "../bert/config.hpp"
#include "../gpt/config.hpp"
#include "../options/options.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace examples {

/// A batcher of any type; cheap to copy. A default one is empty.
class AnyBatcher {
 public:
  AnyBatcher() = default;
  template <dhp::Batcher B>
  explicit AnyBatcher(B batcher) : size_(batcher.size()) {
    if constexpr (requires { batcher.labels_only(); })
      collate_labels_ = collating(batcher.labels_only());
    collate_ = collating(std::move(batcher));
  }

  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] dhp::HostBatch collate(std::span<const std::int64_t> indices,
                                       std::int64_t epoch) const {
    return collate_(indices, epoch);
  }
  /// Returns a batcher that reads no images, for ranks that need only labels.
  [[nodiscard]] AnyBatcher labels_only() const {
    AnyBatcher result = *this;
    if (collate_labels_) result.collate_ = collate_labels_;
    return result;
  }
  /// Returns a batcher over the first `count` samples; 0: all.
  [[nodiscard]] AnyBatcher first(std::int64_t count) const {
    AnyBatcher fewer = *this;
    if (count > 0 && count < size_) fewer.size_ = count;
    return fewer;
  }
  /// Returns a batcher of `count` samples: sample i is sample i % size() of this one.
  [[nodiscard]] AnyBatcher repeated(std::int64_t count) const {
    AnyBatcher result;
    result.size_ = count;
    result.collate_ = [all = *this](std::span<const std::int64_t> indices, std::int64_t epoch) {
      std::vector<std::int64_t> of_all;
      for (const auto index : indices) of_all.push_back(index % all.size());
      return all.collate(of_all, epoch);
    };
    return result;
  }

 private:
  using Collate = std::function<dhp::HostBatch(std::span<const std::int64_t>, std::int64_t)>;
  [[nodiscard]] static Collate collating(auto batcher) {
    return
        [batcher = std::move(batcher)](std::span<const std::int64_t> indices, std::int64_t epoch) {
          return batcher.collate(indices, epoch);
        };
  }

  std::int64_t size_ = 0;
  Collate collate_;
  Collate collate_labels_;  // unset: collate_ serves labels too
};

/// The data of every trainer.
struct TrainerData {
  AnyBatcher train{};
  AnyBatcher held_out{};
  std::map<std::string, std::string> files{};  ///< the model's small files, by name
  std::string description{};                   ///< one line for the user
  std::vector<std::string> warnings{};
};

struct ImageData : TrainerData {
  std::int64_t channels = 3;
  std::int64_t image_size = 224;
  std::int64_t classes = 1000;
  std::vector<std::string> labels;  ///< class names: those of folders, else numbers
  std::vector<double> mean;         ///< mean of training images per channel, in units of [0, 1]
  std::vector<double> deviation;    ///< their standard deviation
  std::function<std::string()> summary{};  ///< returns a line for the end of the run; may be unset
};

/// Loads "synthetic", a pattern of TFRecord or tar shards, or a directory with an IDX pair (MNIST's file names), with
/// images.npy and labels.npy, with shards, or with a folder of PNG and JPEG files for each class. If image_size or
/// classes is 0, the data determine it.
[[nodiscard]] ImageData load_images(const ResNetOptions& options);

struct TextData : TrainerData {
  PublishedBert bert{};  ///< model of --load or --preset, with the text's vocabulary size
  double unigram_cross_entropy = 0;  ///< the unigram's loss on the held-out masked tokens, in nats
  bool same_shapes = false;          ///< micro-batches of equally many samples have the same shapes
};

/// Loads "synthetic", a text file, a directory of text files, or WordNet's directory (its glosses). same_shapes: makes
/// shapes of padded micro-batches independent of the text, unless whole words are masked.
[[nodiscard]] TextData load_text(const BertOptions& options, bool same_shapes);

struct GptData : TrainerData {
  GptConfig config{};  ///< model of --load or --preset, with the text's vocabulary size
};

/// Loads "synthetic", a text file, or a directory of text files. A file is one document; <|endoftext|> cuts it into
/// several. In .csv, .tsv and .jsonl files each row is a document.
[[nodiscard]] GptData load_gpt_text(const TextModelOptions& options);

struct LabeledText : TrainerData {
  std::vector<std::int32_t> labels;  ///< labels of the held-out samples
  PublishedBert bert{};              ///< the model's config, with the text's classes
};

/// Loads sentences, or pairs of them, and their labels: columns of a .csv, .tsv or .jsonl file.
[[nodiscard]] LabeledText load_labeled_text(const BertOptions& options);

}  // namespace examples
