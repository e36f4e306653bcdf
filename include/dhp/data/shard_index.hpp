// ShardIndex: the positions of all samples in shards, found by a scan. Its file also has the shards' sizes and times.
#pragma once

#include <dhp/core/crc32c.hpp>
#include <dhp/core/fields.hpp>
#include <dhp/data/file.hpp>
#include <dhp/data/shard_scan.hpp>
#include <dhp/data/tar.hpp>
#include <dhp/data/tfrecord.hpp>
#include <dhp/device/thread_pool.hpp>

#include <sys/stat.h>

#include <algorithm>
#include <optional>

namespace dhp::detail {
/// A shard's state at the time of the scan.
struct ShardFile {
  std::string path;
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;
  bool tar = false;  ///< true: a tar file; false: a TFRecord

  /// Returns the file's current size and time.
  [[nodiscard]] static ShardFile inspect(const std::string& path) {
    struct stat status {};
    check_system(::stat(path.c_str(), &status) == 0, "cannot look at ", path);
    check(S_ISREG(status.st_mode), path, ": is not a file");
    return {.path = path,
            .bytes = static_cast<std::uint64_t>(status.st_size),
            .modified_ns =
                std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
  }
  [[nodiscard]] std::string name() const { return path.substr(path.rfind('/') + 1); }
  /// Stores the name instead of the path, so that shards can be moved together with their index.
  void pass(Fields& fields) {
    path = name();
    fields(path, bytes, modified_ns, tar);
  }
  [[nodiscard]] bool same(const ShardFile& other) const {
    return name() == other.name() && bytes == other.bytes && modified_ns == other.modified_ns;
  }
};

struct ShardIndex {
  std::vector<ShardFile> shards;  ///< shards in the order of their samples
  std::vector<ShardSample> samples;
  std::vector<std::string> skipped;  ///< one sentence per skipped damaged part
  SkippedMembers left_out{};
  std::string formats{};  ///< the image formats that the program could read
  bool checked = false;   ///< every image was decoded, and damaged ones were skipped

  void pass(Fields& fields) { fields(shards, samples, skipped, left_out, formats, checked); }
  /// Returns the content of the index's file.
  [[nodiscard]] std::string to_text() const {
    const auto text = concat(magic, Fields::written(*this));
    return text + sum_of(text);
  }
  /// Parses to_text(); the shards then have names instead of paths. Returns nullopt if the text is damaged.
  [[nodiscard]] static std::optional<ShardIndex> parse(std::string_view text) {
    const auto inner = text.substr(0, text.size() - std::min(text.size(), sum_of({}).size()));
    if (!inner.starts_with(magic) || text.substr(inner.size()) != sum_of(inner))
      return std::nullopt;
    auto result = Fields::parsed<ShardIndex>(inner.substr(magic.size()));
    const auto has_shard = [&](const auto& sample) { return sample.shard < result->shards.size(); };
    if (result && !std::all_of(result->samples.begin(), result->samples.end(), has_shard))
      result.reset();
    return result;
  }
  /// Returns whether the index matches the shards' current sizes and times, and was made by a program that reads the
  /// same formats.
  [[nodiscard]] bool is_of(const std::vector<ShardFile>& now,
                           std::span<const Decoder> decoders) const {
    return formats == formats_of(decoders) &&
           std::equal(shards.begin(), shards.end(), now.begin(), now.end(),
                      [](const auto& one, const auto& other) { return one.same(other); });
  }

 private:
  [[nodiscard]] static std::string sum_of(std::string_view text) {
    std::string sum;
    append_number(sum, crc32c(std::as_bytes(std::span(text))));
    return sum;
  }
  static constexpr std::string_view magic = "dhp shard index 4";
};

/// Scans shards concurrently. Recognizes a tar file by its name or its contents.
[[nodiscard]] inline ShardIndex scan_shards(std::vector<ShardFile> shards,
                                            std::span<const Decoder> decoders,
                                            LabelOfJson label_of_json, bool skip_bad, int threads) {
  std::vector<ShardScan> scans(shards.size(), ShardScan{.skip_bad = skip_bad});
  ThreadPool pool(std::max(1, threads));
  pool.run(std::ssize(shards), [&](std::int64_t index) {
    auto& shard = shards[as_size(index)];
    auto& scan = scans[as_size(index)];
    constexpr std::uint64_t magic_at = 257;
    ScannedFile file(shard.path);
    shard.tar = ends_in(shard.path, ".tar") ||
                (file.size() > magic_at + 5 && file.text(magic_at, 5) == "ustar");
    if (file.size() == 0) return scan.damaged(shard.path + ": the shard is empty");
    if (shard.tar) scan_tar(shard.path, decoders, label_of_json, scan);
    else scan_tfrecord(shard.path, scan);
  });
  ShardIndex result{.shards = std::move(shards),
                    .samples = {},
                    .skipped = {},
                    .left_out = {},
                    .formats = formats_of(decoders)};
  for (std::size_t index = 0; index < scans.size(); ++index) {
    for (auto& sample : scans[index].samples) {
      sample.shard = static_cast<std::uint32_t>(index);
      result.samples.push_back(sample);
    }
    for (auto& sentence : scans[index].skipped) result.skipped.push_back(std::move(sentence));
    result.left_out.add(scans[index].left_out);
  }
  return result;
}
}  // namespace dhp::detail
