// A trainer's input: batchers of any dataset, so that the training run is compiled once; and how the
// trainers find their data. Compiled in images.cpp, text.cpp and others, once for both devices.
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
  /// For ranks that need no images, which are then not read.
  [[nodiscard]] AnyBatcher labels_only() const {
    AnyBatcher made = *this;
    if (collate_labels_) made.collate_ = collate_labels_;
    return made;
  }
  /// The first `count` samples only; 0: all.
  [[nodiscard]] AnyBatcher first(std::int64_t count) const {
    AnyBatcher fewer = *this;
    if (count > 0 && count < size_) fewer.size_ = count;
    return fewer;
  }
  /// `count` samples: all of them, again and again.
  [[nodiscard]] AnyBatcher repeated(std::int64_t count) const {
    AnyBatcher made;
    made.size_ = count;
    made.collate_ = [all = *this](std::span<const std::int64_t> indices, std::int64_t epoch) {
      std::vector<std::int64_t> of_all;
      for (const auto index : indices) of_all.push_back(index % all.size());
      return all.collate(of_all, epoch);
    };
    return made;
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
  Collate collate_labels_;  // none: as collate_
};

/// What the data of every trainer are.
struct TrainerData {
  AnyBatcher train{};
  AnyBatcher held_out{};
  std::map<std::string, std::string> files{};  ///< the model's small files, by name
  std::string description{};                   ///< a line for people
  std::vector<std::string> warnings{};
};

struct ImageData : TrainerData {
  std::int64_t channels = 3;
  std::int64_t image_size = 224;
  std::int64_t classes = 1000;
  std::vector<std::string> labels;  ///< of the classes: folders, else numbers
  std::vector<double> mean;         ///< of the training images, per channel, in units of [0, 1]
  std::vector<double> deviation;    ///< the same
  std::function<std::string()> summary{};  ///< a line at the end of the run, if there is one
};

/// "synthetic", a directory with an IDX pair (MNIST's file names), one with images.npy and labels.npy, one with
/// TFRecord or tar shards or a pattern of these, or one with a folder of PNG and JPEG files for each class. image_size
/// and classes of 0: those of the data.
[[nodiscard]] ImageData load_images(const ResNetOptions& options);

struct TextData : TrainerData {
  PublishedBert bert{};  ///< of --load or --preset, with the size of the text's vocabulary
  double unigram_cross_entropy = 0;  ///< of the held-out tokens that are to be predicted, in nats
  bool same_shapes = false;          ///< of all micro-batches of as many samples
};

/// "synthetic", a text file, a directory of them, or WordNet's directory (its glosses). same_shapes: padded
/// micro-batches of as many samples have the same shapes, unless whole words are masked.
[[nodiscard]] TextData load_text(const BertOptions& options, bool same_shapes);

struct GptData : TrainerData {
  GptConfig config{};  ///< as TextData's
};

/// "synthetic", a text file, or a directory of them: each is a document, or several between <|endoftext|>; rows of
/// .csv, .tsv and .jsonl files are documents, too.
[[nodiscard]] GptData load_gpt_text(const TextModelOptions& options);

struct LabelledText : TrainerData {
  std::vector<std::int32_t> labels;  ///< of the held-out samples
  PublishedBert bert{};              ///< as TextData's, with the classes of the text
};

/// Sentences, or pairs of them, and their labels: columns of a .csv, .tsv or .jsonl file.
[[nodiscard]] LabelledText load_labelled_text(const BertOptions& options);

}  // namespace examples
