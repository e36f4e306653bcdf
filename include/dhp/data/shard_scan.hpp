// ShardScan: the result of scanning a shard (a file of many samples): positions of samples, and damaged parts.
#pragma once

#include <dhp/core/open_file.hpp>
#include <dhp/data/file.hpp>
#include <dhp/data/known_file.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dhp::detail {
/// Position of a sample's encoded image in its shard, in bytes. In a TFRecord, the record starts `before` bytes earlier
/// than the image and ends `after` bytes later.
struct ShardSample {
  std::uint64_t at = 0;
  std::uint32_t bytes = 0, before = 0, after = 0;
  std::int32_t label = 0;
  std::uint32_t shard = 0;
  std::uint32_t unused = 0;  ///< in place of padding, whose bytes have no fixed value
  friend bool operator==(const ShardSample&, const ShardSample&) = default;
};

/// Reads small parts of a file, best in forward order; large parts can be skipped. Errors name the byte.
class ScannedFile {
 public:
  explicit ScannedFile(const std::string& path)
      : path_(path), file_(path, O_RDONLY), size_(file_.size()) {}

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  /// Returns `count` bytes from offset `at`, valid until the next call; throws past the end.
  [[nodiscard]] std::span<const std::byte> read(std::uint64_t at, std::size_t count) {
    check(at <= size_ && count <= size_ - at, path_, ", byte ", at, ": the file ends here, ", count,
          " bytes too early");
    if (at < first_ || at + count > first_ + window_.size()) {
      const auto wanted = std::max(count, window_bytes);
      window_.resize(as_size(std::min<std::uint64_t>(wanted, size_ - at)));
      first_ = at;
      file_.read(at, window_);
    }
    return std::span(window_).subspan(as_size(at - first_), count);
  }
  [[nodiscard]] std::string text(std::uint64_t at, std::size_t count) {
    return std::string(text_in(read(at, count)));
  }
  [[nodiscard]] std::uint64_t little_endian(std::uint64_t at, std::size_t count) {
    return ByteCursor(read(at, count), {}).little_endian(count, "");
  }

 private:
  static constexpr std::size_t window_bytes = 4096;
  std::string path_;
  OpenFile file_;
  std::uint64_t size_;
  std::uint64_t first_ = 0;  // offset of the window in the file
  std::vector<std::byte> window_;
};

/// Members of tar shards that belong to no sample, such as a README. They do not count as damage.
struct SkippedMembers {
  std::uint64_t members = 0;
  std::string first{};  ///< the first member: "SHARD: NAME"
  void pass(auto& fields) { fields(members, first); }
  void add(const SkippedMembers& other) {
    if (members == 0) first = other.first;
    members += other.members;
  }
};

/// A shard's samples, and one sentence per skipped part.
struct ShardScan {
  bool skip_bad = false;  ///< skips damaged parts; false: throws at the first
  std::vector<ShardSample> samples{};
  std::vector<std::string> skipped{};
  SkippedMembers left_out{};

  void damaged(std::string sentence) {
    constexpr std::string_view hint = "; --skip-bad leaves out what is damaged";
    if (skip_bad) skipped.push_back(std::move(sentence));
    else fail(sentence, sentence.ends_with(hint) ? "" : hint);
  }
  /// Runs body(), and treats an Error that it throws as damage.
  void guard(auto body) {
    try {
      body();
    } catch (const Error& error) {
      damaged(error.sentence());
    }
  }
};

/// Checks a sample's label, as read from a file. Errors begin with `where`.
[[nodiscard]] inline std::int32_t checked_label(std::int64_t label, const std::string& where) {
  constexpr auto most = std::numeric_limits<std::int32_t>::max() - 1;
  check(label >= 0 && label <= most, where, "the label is ", label, "; 0 to ", most,
        " would be right");
  return static_cast<std::int32_t>(label);
}

/// Throws if a shard is compressed, or is another known kind of file.
inline void check_is_shard(ScannedFile& file) {
  const auto head = file.text(0, as_size(std::min<std::uint64_t>(file.size(), 64)));
  const auto known = known_file(head);
  check(known.empty(), file.path(), ", byte 0: is ", known,
        "; samples are read in any order, which needs tar or TFRecord files that are not packed");
}

/// Limit of the size of an image or a record, in bytes.
inline constexpr std::uint64_t shard_record_limit = std::uint64_t{1} << 30;
}  // namespace dhp::detail
