// ImageFolder: the dataset of a directory with one folder per class, DIR/CLASS/**/FILE. Classes and files are sorted
// bytewise, so every machine sees the same dataset.
#pragma once

#include <dhp/data/decoder.hpp>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

struct ImageFolderOptions {
  DecodeOptions decode = {};
  /// Decodes every file at the start; skips and counts unreadable files, so all ranks have the same number of samples.
  /// If false, files are only listed, and reading a damaged file throws.
  bool skip_bad = false;
  int threads = 1;  ///< number of threads that decode at the start
  /// Sorted names of all classes, such as a training set's; some may lack a folder. Empty: each folder is a class.
  std::vector<std::string> classes = {};
};

class ImageFolder {
 public:
  using Sample = LabeledImage;

  ImageFolder(const std::string& path, std::vector<Decoder> decoders,
              const ImageFolderOptions& options = {})
      : options_(options) {
    check(!decoders.empty(), path, ": this program was built without any image format (PNG, JPEG)");
    auto found = std::make_shared<Found>();
    found->decoders = std::move(decoders);
    const auto folders = find_folders(path);
    const auto& classes = found->classes = options.classes.empty() ? folders : options.classes;
    for (const auto& folder : folders) {
      const auto at = std::lower_bound(classes.begin(), classes.end(), folder);
      check(at != classes.end() && *at == folder, path, " has a folder \"", folder,
            "\" that the training images do not have");
      for (auto& file : files_below(path + "/" + folder))
        found->files.push_back({std::move(file), static_cast<std::int32_t>(at - classes.begin())});
    }
    check_files(*found);
    if (options.classes.empty()) check_classes(path, *found);
    check(!found->files.empty(), path, ": holds no image that can be read");
    found_ = std::move(found);
  }

  [[nodiscard]] std::int64_t size() const { return std::ssize(found_->files); }
  [[nodiscard]] Sample get(std::int64_t index, detail::PartOf part = {}) const {
    detail::check_sample_index(index, size());
    const auto& file = found_->files[detail::as_size(index)];
    try {
      return {read(*found_, file, std::move(part)), file.label};
    } catch (const Error& error) {
      fail(error.sentence(), "; --skip-bad skips such files");
    }
  }
  [[nodiscard]] std::int32_t label(std::int64_t index) const {
    detail::check_sample_index(index, size());
    return found_->files[detail::as_size(index)].label;
  }
  [[nodiscard]] const std::vector<std::string>& class_names() const { return found_->classes; }
  [[nodiscard]] int classes() const { return static_cast<int>(found_->classes.size()); }
  /// Returns one sentence per skipped file; empty unless skip_bad is set.
  [[nodiscard]] const std::vector<std::string>& skipped() const { return found_->skipped; }

 private:
  struct File {
    std::string path;
    std::int32_t label = 0;
  };
  struct Found {
    std::vector<Decoder> decoders;
    std::vector<std::string> classes;
    std::vector<File> files;
    std::vector<std::string> skipped;
  };

  [[nodiscard]] Image read(const Found& found, const File& file, detail::PartOf part = {}) const {
    auto decode = options_.decode;
    decode.part = std::move(part);
    return read_image(file.path, found.decoders, decode);
  }

  [[nodiscard]] static std::vector<std::string> find_folders(const std::string& path) {
    std::error_code error;
    std::vector<std::string> folders;
    check(std::filesystem::is_directory(path, error), path, ": no such directory");
    for (std::filesystem::directory_iterator at(path, error), end; !error && at != end;
         at.increment(error)) {
      const auto name = at->path().filename().string();
      if (!name.starts_with('.') && at->is_directory(error)) folders.push_back(name);
    }
    check(!error, path, ": ", error.message());
    check(!folders.empty(), path,
          ": holds no directory of a class; DIR/CLASS/IMAGE is expected, or shards, or images.npy "
          "and labels.npy, or MNIST's files");
    std::sort(folders.begin(), folders.end());
    return folders;
  }

  void check_files(Found& found) const {
    const auto read_one = [&](const File& file) {
      const auto extension = std::filesystem::path(file.path).extension();
      check(detail::decoder_for(found.decoders, extension) != nullptr, file.path,
            ": not an image format of this program (", detail::formats_of(found.decoders), ")");
      if (options_.skip_bad) (void)read(found, file);
    };
    detail::keep_good(found.files, options_.threads, read_one, [&](std::string wrong) {
      check(options_.skip_bad, wrong, "; --skip-bad skips such files");
      found.skipped.push_back(std::move(wrong));
    });
  }

  static void check_classes(const std::string& path, const Found& found) {
    std::vector<bool> present(found.classes.size(), false);
    for (const auto& file : found.files) present[detail::as_size(file.label)] = true;
    for (std::size_t label = 0; label < present.size(); ++label)
      check(present[label], path, "/", found.classes[label], ": holds no image that can be read");
  }

  ImageFolderOptions options_;
  std::shared_ptr<const Found> found_;
};

}  // namespace dhp
