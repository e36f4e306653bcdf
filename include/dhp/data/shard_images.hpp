// ShardImages: a dataset of the images in TFRecord or tar shards, located by a persistent index.
#pragma once

#include <dhp/core/hash.hpp>
#include <dhp/data/shard_reader.hpp>

#include <optional>

namespace dhp {

struct ShardOptions {
  DecodeOptions decode = {};
  /// Checks and decodes every image while indexing; skips and counts damaged parts. If false, indexing checks framing
  /// and labels, and reading a damaged image throws.
  bool skip_bad = false;
  int threads = 1;                              ///< number of threads that scan the shards
  std::string index_folder = {};                ///< folder of the index; empty: next to the shards
  detail::LabelOfJson label_of_json = nullptr;  ///< parser of .json labels in tar shards
  std::shared_ptr<detail::BlockCache> cache = {};  ///< cache for shards on slow storage; null: none
  /// The label that becomes class 0. Empty: 1 if that is the smallest label, otherwise 0.
  std::optional<int> first_label = {};
};

class ShardImages {
 public:
  using Sample = LabeledImage;

  ShardImages(const std::vector<std::string>& paths, std::vector<Decoder> decoders,
              ShardOptions options = {})
      : options_(std::move(options)) {
    check(!decoders.empty(), "this program was built without any image format (PNG, JPEG)");
    check(!paths.empty(), "there is no shard");
    auto found = std::make_shared<Found>();
    found->decoders = std::move(decoders);
    std::vector<detail::ShardFile> shards;
    for (const auto& path : paths) shards.push_back(detail::ShardFile::inspect(path));
    open_index(*found, shards);
    const auto& samples = found->index.samples;
    check(!samples.empty(), paths.front(), paths.size() > 1 ? " and others hold" : ": holds",
          " no sample that can be read", left_out_text(*found));
    const auto [least, most] =
        std::minmax_element(samples.begin(), samples.end(),
                            [](auto& one, auto& other) { return one.label < other.label; });
    found->first_label = options_.first_label.value_or(least->label == 1 ? 1 : 0);
    check(least->label >= found->first_label, name_of(*found, *least), ": its label is ",
          least->label, ", but labels count from ", found->first_label,
          "; --first-label says where they begin");
    found->classes = most->label - found->first_label + 1;
    // From here on, reads go through the cache, to which the reader adds the shards.
    found->reader =
        std::make_unique<detail::ShardReader>(found->index.shards, options_.cache.get());
    found_ = std::move(found);
  }

  [[nodiscard]] std::int64_t size() const { return std::ssize(found_->index.samples); }
  [[nodiscard]] Sample get(std::int64_t index, detail::PartOf part = {}) const {
    return {read(*found_, sample(index), std::move(part)), label(index)};
  }
  [[nodiscard]] std::int32_t label(std::int64_t index) const {
    return sample(index).label - found_->first_label;
  }
  /// Returns one more than the largest label().
  [[nodiscard]] int classes() const { return found_->classes; }
  /// Returns the label that class 0 has in the shards.
  [[nodiscard]] int first_label() const { return found_->first_label; }
  [[nodiscard]] const std::vector<detail::ShardFile>& shards() const {
    return found_->index.shards;
  }
  /// Returns one sentence per skipped part; empty unless skip_bad is set.
  [[nodiscard]] const std::vector<std::string>& skipped() const { return found_->index.skipped; }
  /// Returns ", 4 members of no sample (NAME.png with NAME.cls or NAME.json) left out, first: a.tar: b.c.png", or "".
  [[nodiscard]] std::string left_out_text() const { return left_out_text(*found_); }
  /// Returns the error that prevented saving the index; empty if it was saved.
  [[nodiscard]] const std::string& index_error() const { return found_->index_error; }
  [[nodiscard]] bool index_was_kept() const { return found_->index_was_kept; }
  /// Returns the number of bytes read from the shards rather than from the cache.
  [[nodiscard]] std::uint64_t bytes_read() const { return found_->reader->bytes_read(); }

  /// Returns the path of the shards' index. In a separate folder, its name is derived from the paths of the shards.
  [[nodiscard]] static std::string index_path(const std::vector<detail::ShardFile>& shards,
                                              const std::string& folder) {
    std::string names;
    for (const auto& shard : shards)
      names +=
          (folder.empty() ? shard.name() : std::filesystem::absolute(shard.path).string()) + '\n';
    const auto beside = std::filesystem::absolute(shards.front().path).parent_path().string();
    return concat(folder.empty() ? beside : folder, "/dhp-index-", detail::fnv1a_text(names));
  }

 private:
  struct Found {
    std::vector<Decoder> decoders;
    detail::ShardIndex index;
    std::unique_ptr<detail::ShardReader> reader;
    std::string index_error;
    bool index_was_kept = false;
    int first_label = 0, classes = 0;
  };

  [[nodiscard]] static std::string left_out_text(const Found& found) {
    const auto& [members, first] = found.index.left_out;
    if (members == 0) return {};
    return concat(", ", detail::pluralize(members, "member"),
                  " of no sample (NAME.png with NAME.cls or NAME.json) left out, first: ", first);
  }
  [[nodiscard]] const detail::ShardSample& sample(std::int64_t index) const {
    detail::check_sample_index(index, size());
    return found_->index.samples[detail::as_size(index)];
  }
  void open_index(Found& found, const std::vector<detail::ShardFile>& shards) const {
    const auto path = index_path(shards, options_.index_folder);
    if (take_kept(found, path, shards)) return;
    std::optional<OpenFile> lock;
    try {
      if (!options_.index_folder.empty())
        std::filesystem::create_directories(options_.index_folder);
      lock.emplace(path + ".lock", O_WRONLY | O_CREAT);
      lock->lock();  // one process scans; the others wait for its index
      if (take_kept(found, path, shards)) return;
    } catch (const std::exception& error) {
      found.index_error = detail::sentence_of(error);
    }
    use(found,
        detail::scan_shards(shards, found.decoders, options_.label_of_json, options_.skip_bad,
                            options_.threads),
        shards);
    if (options_.skip_bad) leave_out_bad(found);
    if (!found.index_error.empty()) return;
    try {
      replace_file(path, found.index.to_text());
    } catch (const Error& error) {
      found.index_error = error.sentence();
    }
  }
  // Takes an existing index if it is current and was made with the same options; returns whether it did.
  bool take_kept(Found& found, const std::string& path,
                 const std::vector<detail::ShardFile>& shards) const {
    try {
      if (!std::filesystem::exists(path)) return false;
      auto index = detail::ShardIndex::parse(text_of(path));
      if (!index || !index->is_of(shards, found.decoders) || (options_.skip_bad && !index->checked))
        return false;
      if (!options_.skip_bad && !index->skipped.empty()) return false;
      use(found, std::move(*index), shards);
    } catch (const Error&) {
      return false;  // an unreadable index is rebuilt
    }
    found.index_was_kept = true;
    return true;
  }
  static void use(Found& found, detail::ShardIndex index,
                  const std::vector<detail::ShardFile>& shards) {
    found.index = std::move(index);
    for (std::size_t at = 0; at < shards.size(); ++at)
      found.index.shards[at].path = shards[at].path;
    found.reader = std::make_unique<detail::ShardReader>(found.index.shards);
  }
  void leave_out_bad(Found& found) const {
    auto& index = found.index;
    detail::keep_good(
        index.samples, options_.threads, [&](const auto& sample) { (void)read(found, sample); },
        [&](std::string wrong) { index.skipped.push_back(std::move(wrong)); });
    index.checked = true;
  }

  [[nodiscard]] Image read(const Found& found, const detail::ShardSample& sample,
                           detail::PartOf part = {}) const {
    constexpr std::size_t checksum_bytes = 4;
    const bool tar = found.index.shards[sample.shard].tar;
    const auto record_bytes = std::size_t{sample.before} + sample.bytes + sample.after;
    Bytes bytes(record_bytes + (tar ? 0 : checksum_bytes));
    try {
      found.reader->read(sample.shard, sample.at - sample.before, bytes);
      const auto record = std::span<const std::byte>(bytes).first(record_bytes);
      check(tar || detail::ByteCursor(std::span(bytes).last(checksum_bytes), {})
                           .little_endian(checksum_bytes, "") == detail::masked_crc32c(record),
            "", name_of(found, sample),
            ": the checksum of its record is wrong, so that it is damaged");
      auto decode = options_.decode;
      decode.part = std::move(part);
      return detail::decode_image(found.decoders, record.subspan(sample.before, sample.bytes),
                                  name_of(found, sample), decode);
    } catch (const Error& error) {
      const auto key = key_of(found, sample);
      fail(error.sentence(), key.empty() ? "" : "; its key is ", key,
           options_.skip_bad ? "" : "; --skip-bad leaves out what is damaged");
    }
  }
  [[nodiscard]] static std::string name_of(const Found& found, const detail::ShardSample& sample) {
    return concat(found.index.shards[sample.shard].path, ", byte ", sample.at);
  }
  // Returns a sample's key for errors. Reads it from the shard, because the index lacks it.
  [[nodiscard]] static std::string key_of(const Found& found, const detail::ShardSample& sample) {
    try {
      const auto& shard = found.index.shards[sample.shard];
      detail::ScannedFile file(shard.path);
      constexpr std::uint64_t header = 512, name_bytes = 100;
      if (!shard.tar)
        return detail::read_image_example(file, sample.at - sample.before,
                                          sample.at + sample.bytes + sample.after)
            .key;
      const auto name = file.text(sample.at - header, name_bytes);
      return name.substr(0, name.find('\0'));
    } catch (const Error&) {
      return {};
    }
  }

  ShardOptions options_;
  std::shared_ptr<const Found> found_;
};

}  // namespace dhp
