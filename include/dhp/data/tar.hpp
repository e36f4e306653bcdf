// Reads shards in WebDataset's format: tar files in which consecutive members with the same name up to the first dot
// form a sample: 000123.jpg with 000123.cls (the label as text) or 000123.json (with "label"). Other members, such as
// 000123.seg.jpg, are ignored. Supports ustar (POSIX.1-1988), pax headers (POSIX.1-2001), and GNU's long names.
#pragma once

#include <dhp/data/decoder.hpp>
#include <dhp/data/shard_scan.hpp>

#include <charconv>
#include <optional>
#include <string_view>

namespace dhp::detail {
/// A member of a tar file, with contents [first, first + bytes).
struct TarMember {
  std::string name;
  char type = '0';
  std::uint64_t first = 0, bytes = 0;
};

/// Iterates over a tar file's members, except directories. Errors name the byte.
class TarMembers {
 public:
  explicit TarMembers(ScannedFile& file) : file_(&file) {}

  /// Returns the next member; nullopt at the end.
  [[nodiscard]] std::optional<TarMember> next() {
    std::string long_name;
    std::optional<std::uint64_t> long_size;
    bool ended = false;
    for (;;) {
      if (at_ == file_->size()) {
        if (!ended) reject("the file ends without tar's end mark, so that members may be missing");
        return std::nullopt;
      }
      if (file_->size() - at_ < block) reject("the file ends in the middle of a tar header");
      const auto bytes = file_->read(at_, block);
      ended =
          std::all_of(bytes.begin(), bytes.end(), [](auto byte) { return byte == std::byte{}; });
      if (ended) {
        at_ += block;
        continue;
      }
      check_sum(bytes);
      TarMember member{
          .name = name_of(), .type = static_cast<char>(bytes[156]), .first = at_ + block};
      member.bytes =
          long_size && member.type != 'x' && member.type != 'g' ? *long_size : number(124, 12);
      if (member.bytes > file_->size() - member.first)
        reject("the member ", member.name, " of ", member.bytes, " bytes is cut off: the file has ",
               file_->size() - member.first, " more");
      if (member.type == 'L' || member.type == 'x') {
        if (member.bytes > 1 << 20)
          reject("a header of ", member.bytes, " bytes is above the limit");
        auto text = file_->text(member.first, as_size(member.bytes));
        if (member.type == 'L') long_name = text.substr(0, text.find('\0'));
        else read_pax(text, long_name, long_size);
      }
      last_ = at_;
      at_ = member.first +
            std::min((member.bytes + block - 1) / block * block, file_->size() - member.first);
      if (std::string_view("LxgK").find(member.type) != std::string_view::npos) continue;
      if (member.type == '5') {  // headers before a directory are not of the next member
        long_name.clear();
        long_size.reset();
        continue;
      }
      if (!long_name.empty()) member.name = long_name;
      return member;
    }
  }
  /// Returns the offset of the header of the member that next() returned last.
  [[nodiscard]] std::uint64_t header() const { return last_; }

 private:
  static constexpr std::uint64_t block = 512;

  [[noreturn]] void reject(const auto&... parts) const {
    fail(file_->path(), ", byte ", at_, ": ", parts...);
  }
  // Checks a header's checksum: a sum of bytes, with the bytes of the checksum itself taken as spaces.
  void check_sum(std::span<const std::byte> bytes) {
    std::uint64_t sum = 8 * ' ';
    for (std::size_t place = 0; place < bytes.size(); ++place)
      if (place < 148 || place >= 156) sum += std::to_integer<std::uint64_t>(bytes[place]);
    if (number(148, 8) != sum)
      reject(at_ == 0
                 ? "not a tar file, or damaged: its first header's checksum is wrong"
                 : "the checksum of a tar header is wrong, so that nothing after it can be read");
  }
  [[nodiscard]] std::string text(std::uint64_t place, std::size_t count) const {
    const auto field = file_->text(at_ + place, count);
    return field.substr(0, field.find('\0'));
  }
  [[nodiscard]] std::string name_of() const {
    const auto prefix = text(257, 6) == "ustar" ? text(345, 155) : std::string();
    return prefix.empty() ? text(0, 100) : prefix + "/" + text(0, 100);
  }
  // Reads octal digits, or GNU's binary form of large numbers.
  [[nodiscard]] std::uint64_t number(std::uint64_t place, std::size_t count) const {
    std::uint64_t value = 0;
    const auto field = file_->text(at_ + place, count);
    if ((static_cast<unsigned char>(field[0]) & 128) != 0) {
      for (const char letter : field.substr(count - 8))
        value = value << 8 | static_cast<unsigned char>(letter);
      return value;
    }
    for (const char letter : field)
      if (letter >= '0' && letter <= '7') value = value << 3 | static_cast<unsigned>(letter - '0');
      else if (letter != ' ' && letter != '\0') reject("a number of a tar header is damaged");
    return value;
  }
  // Reads the lines of a pax header: "LENGTH KEY=VALUE".
  void read_pax(std::string_view lines, std::string& name,
                std::optional<std::uint64_t>& size) const {
    while (!lines.empty()) {
      std::size_t length = 0;
      const auto [end, error] = std::from_chars(lines.data(), lines.data() + lines.size(), length);
      const auto digits = as_size(end - lines.data());
      if (error != std::errc() || length > lines.size() || length < digits + 2)
        reject("a pax header is damaged");
      const auto line = lines.substr(digits + 1, length - digits - 2);
      lines.remove_prefix(length);
      if (line.starts_with("path=")) name = line.substr(5);
      if (line.starts_with("GNU.sparse.")) reject("a sparse member of a tar file cannot be read");
      if (line.starts_with("size=")) size = number_of<std::uint64_t>(line.substr(5)).value_or(0);
    }
  }

  ScannedFile* file_;
  std::uint64_t at_ = 0, last_ = 0;
};

/// Returns the integer "label" of a JSON object, if present. For tar shards with .json; see data/json_label.hpp.
using LabelOfJson = std::optional<std::int64_t> (*)(const std::string& text);

/// Adds the samples of a shard. A member whose extension has a decoder is an image.
inline void scan_tar(const std::string& path, std::span<const Decoder> decoders,
                     LabelOfJson label_of_json, ShardScan& scan) {
  ScannedFile file(path);
  constexpr std::size_t magic_at = 257;
  if (file.size() < magic_at + 5 || file.text(magic_at, 5) != "ustar") check_is_shard(file);
  TarMembers members(file);
  struct Found {
    std::string key;
    std::uint64_t header = 0;
    std::string names{};       // names of the sample's members
    SkippedMembers members{};  // counts the sample's members in case they are left out
    std::optional<TarMember> image{};
    std::optional<std::int32_t> label{};
    bool damaged = false;
  } sample;
  const auto finish = [&] {
    if (sample.damaged) return;
    if (!sample.image && !sample.label) return scan.left_out.add(sample.members);
    scan.guard([&] {
      const auto name = concat(path, ", byte ", sample.header, ": the sample ", sample.key);
      check(sample.image.has_value(), name, " has a label and no image (", formats_of(decoders),
            ") among ", sample.names);
      check(sample.label.has_value(), name, " has no label: no .cls and no .json with one among ",
            sample.names,
            "; members of a sample follow each other, as tar --sort=name writes them");
      scan.samples.push_back({.at = sample.image->first,
                              .bytes = static_cast<std::uint32_t>(sample.image->bytes),
                              .label = *sample.label});
    });
  };
  const auto label_in = [&](const TarMember& member, bool json) -> std::optional<std::int64_t> {
    const auto text = file.text(member.first, as_size(member.bytes));
    if (json) {
      check(label_of_json != nullptr, "this program was built without JSON; .cls would be right");
      return label_of_json(text);
    }
    constexpr const char* spaces = " \n\r\t";
    const auto end = text.find_last_not_of(spaces) + 1;
    const auto first = std::min(text.find_first_not_of(spaces), end);
    const auto label = number_of<std::int64_t>(text.substr(first, end - first));
    check(label.has_value(), "\"", text.substr(0, 40), "\" is not the number of a class");
    return label;
  };
  const auto add = [&](const TarMember& member, const std::string& extension) {
    const bool image = decoder_for(decoders, extension) != nullptr;
    if (!image && extension != ".cls" && extension != ".json") return;
    check(member.type == '0' || member.type == '\0' || member.type == '7',
          "it is a link or no file");
    check(member.bytes <= (image ? shard_record_limit : 1 << 20), "its ", member.bytes,
          " bytes are above the limit");
    if (image) {
      check(!sample.image, "its sample has an image already: ", sample.names);
      sample.image = member;
    } else if (const auto found = label_in(member, extension == ".json")) {
      const auto label = checked_label(*found, {});
      const auto other = sample.label.value_or(label);
      check(other == label, "its label is ", label, ", and ", other, " in another member");
      sample.label = label;
    }
  };
  scan.guard([&] {
    while (const auto member = members.next()) {
      const auto slash = member->name.rfind('/');
      const auto base = slash == std::string::npos ? 0 : slash + 1;
      const auto dot = std::min(member->name.find('.', base), member->name.size());
      const auto key = member->name.substr(0, dot);
      if (dot == base) continue;  // a hidden file, or the folder itself
      if (key != sample.key) {
        finish();
        sample = {.key = key, .header = members.header()};
      }
      try {
        add(*member, lower_case(member->name.substr(dot)));
      } catch (const Error& error) {
        sample.damaged = true;
        scan.damaged(
            concat(path, ", byte ", members.header(), ": ", member->name, ": ", error.sentence()));
      }
      sample.members.add({1, concat(path, ": ", member->name)});
      if (sample.names.size() < 100)
        sample.names += (sample.names.empty() ? "" : " ") + member->name;
    }
  });
  finish();
}
}  // namespace dhp::detail
