// Reads shards in TensorFlow's format: records of u64 length, its checksum, data, their checksum; data is a tf.Example
// (defined in tensorflow/core/lib/io/record_writer.h and core/example/example.proto). The scan reads no images.
#pragma once

#include <dhp/core/crc32c.hpp>
#include <dhp/data/shard_scan.hpp>

#include <optional>
#include <utility>

namespace dhp::detail {
/// Iterates over the fields of a Protocol Buffers message in part of a file.
class WireFields {
 public:
  WireFields(ScannedFile& file, std::uint64_t first, std::uint64_t last)
      : file_(&file), at_(first), last_(last) {}

  struct Field {
    std::uint64_t number = 0;
    bool is_bytes = false;  ///< true: bytes [first, last) of the file; false: `value`
    std::uint64_t first = 0, last = 0;
    std::uint64_t value = 0;
    bool several = false;  ///< the field is a list, of which this is the last value
    [[nodiscard]] std::size_t size() const { return as_size(last - first); }
  };
  /// Returns the next field that holds bytes or a varint; nullopt at the end.
  [[nodiscard]] std::optional<Field> next() {
    while (at_ < last_) {
      const auto tag = varint();
      Field field{.number = tag >> 3};
      switch (tag & 7) {
        case 0: field.value = varint(); return field;
        case 1: (void)skip(8); continue;
        case 5: (void)skip(4); continue;
        case 2: break;
        default: reject("it is not a tf.Example");
      }
      field.is_bytes = true;
      const auto bytes = varint();
      field.first = skip(bytes);
      field.last = at_;
      return field;
    }
    return std::nullopt;
  }
  [[nodiscard]] std::optional<std::uint64_t> next_varint() {
    if (at_ == last_) return std::nullopt;
    return varint();
  }

 private:
  [[noreturn]] void reject(const auto&... parts) const {
    fail(file_->path(), ", byte ", at_, ": ", parts...);
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == last_) reject("the record ends in the middle of a number");
      const auto byte = file_->little_endian(at_++, 1);
      value |= (byte & 127) << shift;
      if (byte < 128) return value;
    }
    reject("a number has too many bytes: it is not a tf.Example");
  }
  std::uint64_t skip(std::uint64_t bytes) {
    if (bytes > last_ - at_)
      reject("a field of ", bytes, " bytes in a record with ", last_ - at_, " left");
    return std::exchange(at_, at_ + bytes);
  }

  ScannedFile* file_;
  std::uint64_t at_, last_;
};

/// The image fields of a tf.Example.
struct ImageExample {
  std::optional<WireFields::Field> image{};
  std::optional<std::int64_t> label{};
  std::string key{};       ///< the image's file name, if the record has it
  std::string features{};  ///< the names of all features, for errors
  /// The name of the chosen image or label feature if it has several values.
  std::string image_list{}, label_list{};
};

/// Returns the value of a tf.Feature: bytes, or an integer, packed or not; nullopt for floats and empty features.
[[nodiscard]] inline std::optional<WireFields::Field> feature_value(ScannedFile& file,
                                                                    WireFields::Field feature) {
  std::optional<WireFields::Field> value;
  WireFields lists(file, feature.first, feature.last);
  while (const auto list = lists.next()) {
    if (!list->is_bytes || list->number == 2) continue;
    WireFields values(file, list->first, list->last);
    while (auto one = values.next()) {
      if (list->number == 3 && one->is_bytes) {
        WireFields packed(file, one->first, one->last);
        const auto first = packed.next_varint();
        if (!first) continue;
        *one = {.number = 1, .value = *first, .several = packed.next_varint().has_value()};
      }
      one->several = one->several || value;
      value = one;
    }
  }
  return value;
}

/// Reads the tf.Example in [first, last) of a file. The image is the feature `image/encoded`, or else `image`; the
/// label is `image/class/label`, or else `label`.
[[nodiscard]] inline ImageExample read_image_example(ScannedFile& file, std::uint64_t first,
                                                     std::uint64_t last) {
  ImageExample result;
  bool whole_image = false, whole_label = false;  // found under the preferred name
  WireFields example(file, first, last);
  while (const auto features = example.next()) {
    if (features->number != 1 || !features->is_bytes) continue;
    WireFields entries(file, features->first, features->last);
    while (const auto entry = entries.next()) {
      if (entry->number != 1 || !entry->is_bytes) continue;
      std::string name;
      std::optional<WireFields::Field> value;
      WireFields pair(file, entry->first, entry->last);
      while (const auto part = pair.next()) {
        if (!part->is_bytes) continue;
        if (part->number == 1)
          name = file.text(part->first, std::min<std::size_t>(part->size(), 80));
        if (part->number == 2) value = feature_value(file, *part);
      }
      if (result.features.size() < 200)
        result.features += (result.features.empty() ? "" : ", ") + name;
      if (!value) continue;
      if (value->is_bytes && (name == "image/encoded" || (name == "image" && !whole_image))) {
        result.image = value;
        whole_image = name == "image/encoded";
        result.image_list = value->several ? name : "";
      }
      if (!value->is_bytes && (name == "image/class/label" || (name == "label" && !whole_label))) {
        result.label = static_cast<std::int64_t>(value->value);
        whole_label = name == "image/class/label";
        result.label_list = value->several ? name : "";
      }
      if (value->is_bytes && name == "image/filename")
        result.key = file.text(value->first, std::min<std::size_t>(value->size(), 200));
    }
  }
  return result;
}

/// Adds a shard's samples. Checks framing and labels; a record's checksum is checked when the record is read.
inline void scan_tfrecord(const std::string& path, ShardScan& scan) {
  ScannedFile file(path);
  constexpr std::uint64_t head = 12, tail = 4;
  for (std::uint64_t at = 0; at < file.size();) {
    const auto left = file.size() - at;
    const auto rest = concat(path, ", byte ", at, ": ");
    if (at == 0 && left < head + tail) check_is_shard(file);
    if (left < head + tail)
      return scan.damaged(concat(rest, "the file ends in the middle of a record, of which it has ",
                                 left, " bytes"));
    const auto bytes = file.little_endian(at, 8);
    if (masked_crc32c(file.read(at, 8)) != file.little_endian(at + 8, 4)) {
      if (at == 0) check_is_shard(file);
      return scan.damaged(concat(
          rest,
          at == 0 ? "not a TFRecord, or damaged: the checksum of the first record's length is wrong"
                  : "the checksum of a record's length is wrong, so that nothing after it can be "
                    "read"));
    }
    if (bytes > left - head - tail)
      return scan.damaged(concat(rest, "a record of ", bytes, " bytes is cut off: the file has ",
                                 left - head, " more"));
    const auto first = at + head;
    scan.guard([&] {
      check(bytes <= shard_record_limit, rest, "a record of ", bytes,
            " bytes is above the limit of ", shard_record_limit);
      const auto example = read_image_example(file, first, first + bytes);
      check(example.image && example.label, rest, "a record without ",
            example.image ? "image/class/label or label, an integer"
                          : "image/encoded or image, of bytes",
            "; its features are ", example.features.empty() ? "none" : example.features);
      const auto& list = example.image_list.empty() ? example.label_list : example.image_list;
      check(list.empty(), rest, "its ", list,
            " has several values; a sample has one image and one label");
      const auto& image = *example.image;
      scan.samples.push_back({.at = image.first,
                              .bytes = static_cast<std::uint32_t>(image.size()),
                              .before = static_cast<std::uint32_t>(image.first - first),
                              .after = static_cast<std::uint32_t>(first + bytes - image.last),
                              .label = checked_label(*example.label, rest)});
    });
    at = first + bytes + tail;
  }
}
}  // namespace dhp::detail
