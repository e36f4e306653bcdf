// ShardIndex has the positions of all samples in shards. A scan makes it; its file has the shards' sizes and times.
#pragma once

#include <dhp/core/crc32c.hpp>
#include <dhp/data/file.hpp>
#include <dhp/data/shard_scan.hpp>
#include <dhp/data/tar.hpp>
#include <dhp/data/tfrecord.hpp>
#include <dhp/device/thread_pool.hpp>

#include <sys/stat.h>

#include <array>
#include <bit>

namespace dhp::detail {
/// A shard as the scan found it.
struct ShardFile {
  std::string path;
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;
  bool tar = false;  ///< true: a tar file; false: a TFRecord

  /// Returns the file's size and time as they are now.
  [[nodiscard]] static ShardFile of(const std::string& path) {
    struct stat status {};
    check_system(::stat(path.c_str(), &status) == 0, "cannot look at ", path);
    check(S_ISREG(status.st_mode), path, ": is not a file");
    check(status.st_size > 0, path, ": the shard is empty");
    return {.path = path,
            .bytes = static_cast<std::uint64_t>(status.st_size),
            .modified_ns =
                std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
  }
  [[nodiscard]] std::string name() const { return path.substr(path.rfind('/') + 1); }
  [[nodiscard]] bool same(const ShardFile& other) const {
    return name() == other.name() && bytes == other.bytes && modified_ns == other.modified_ns;
  }
};

struct ShardIndex {
  std::vector<ShardFile> shards;  ///< shards in the order of their samples
  std::vector<ShardSample> samples;
  std::vector<std::string> skipped;  ///< one sentence per skipped damaged part
  SkippedSample left_out{};
  bool checked = false;  ///< every image was decoded, and undecodable ones skipped

  [[nodiscard]] Bytes to_bytes() const {
    Bytes made;
    const auto put = [&](auto value) {
      const auto bytes = std::bit_cast<std::array<std::byte, sizeof value>>(value);
      made.insert(made.end(), bytes.begin(), bytes.end());
    };
    const auto put_text = [&](std::string_view text) {
      put(std::uint64_t{text.size()});
      const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
      made.insert(made.end(), bytes.begin(), bytes.end());
    };
    put_text(magic);
    put(std::uint64_t{checked});
    put(std::uint64_t{shards.size()});
    for (const auto& shard : shards) {
      put_text(shard.name());
      put(shard.bytes);
      put(shard.modified_ns);
      put(std::uint64_t{shard.tar});
    }
    put(std::uint64_t{skipped.size()});
    for (const auto& sentence : skipped) put_text(sentence);
    put(left_out.members);
    put_text(left_out.first);
    put(std::uint64_t{samples.size()});
    for (const auto& sample : samples) {
      put(sample.at);
      for (const auto value : {sample.bytes, sample.before, sample.after, sample.shard}) put(value);
      put(sample.label);
    }
    put(crc32c(made));
    return made;
  }
  /// Parses to_bytes(); the shards have names instead of paths. Throws Error if the bytes are damaged.
  [[nodiscard]] static ShardIndex parse(std::span<const std::byte> bytes, const std::string& name) {
    ByteCursor at(bytes, name);
    const auto number = [&] { return at.little_endian(8, "the index"); };
    const auto word = [&] { return static_cast<std::uint32_t>(at.little_endian(4, "the index")); };
    const auto text = [&] {
      const auto part = at.take(as_size(number()), "the index");
      return std::string(reinterpret_cast<const char*>(part.data()), part.size());
    };
    if (bytes.size() < 4 || ByteCursor(bytes.last(4), name).little_endian(4, "the index") !=
                                crc32c(bytes.first(bytes.size() - 4)))
      at.wrong("the checksum of the index is wrong");
    if (text() != magic) at.wrong("not an index of this version");
    ShardIndex made;
    made.checked = number() != 0;
    for (auto left = number(); left > 0; --left) {
      ShardFile shard{.path = text()};
      shard.bytes = number();
      shard.modified_ns = static_cast<std::int64_t>(number());
      shard.tar = number() != 0;
      made.shards.push_back(std::move(shard));
    }
    for (auto left = number(); left > 0; --left) made.skipped.push_back(text());
    made.left_out.members = number();
    made.left_out.first = text();
    const auto count = number();
    if (count > at.left() / sample_bytes) at.wrong("the index ends too early");
    made.samples.resize(as_size(count));
    for (auto& sample : made.samples) {
      sample.at = number();
      for (auto* value : {&sample.bytes, &sample.before, &sample.after, &sample.shard})
        *value = word();
      sample.label = static_cast<std::int32_t>(word());
      if (sample.shard >= made.shards.size()) at.wrong("the index has a sample of no shard");
    }
    return made;
  }
  /// Returns whether the index matches the shards' current sizes and times.
  [[nodiscard]] bool is_of(const std::vector<ShardFile>& now) const {
    return std::equal(shards.begin(), shards.end(), now.begin(), now.end(),
                      [](const auto& one, const auto& other) { return one.same(other); });
  }

 private:
  static constexpr std::string_view magic = "dhp shard index 2";
  static constexpr std::size_t sample_bytes = 28;
};

/// Scans shards concurrently. A shard's contents or its name tell whether it is a tar file.
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
    if (shard.tar) scan_tar(shard.path, decoders, label_of_json, scan);
    else scan_tfrecord(shard.path, scan);
  });
  ShardIndex made{.shards = std::move(shards), .samples = {}, .skipped = {}, .left_out = {}};
  for (std::size_t index = 0; index < scans.size(); ++index) {
    for (auto& sample : scans[index].samples) {
      sample.shard = static_cast<std::uint32_t>(index);
      made.samples.push_back(sample);
    }
    for (auto& sentence : scans[index].skipped) made.skipped.push_back(std::move(sentence));
    made.left_out.add(scans[index].left_out);
  }
  return made;
}
}  // namespace dhp::detail
