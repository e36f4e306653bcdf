// Identifies a file by its contents, for messages about files that cannot be read.
#pragma once

#include <dhp/core/config.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace dhp::detail {

[[nodiscard]] inline std::string lower_case(std::string text) {
  for (char& letter : text)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  return text;
}
/// Returns whether a name has this ending, ignoring case: "a.TAR" ends in ".tar".
[[nodiscard]] inline bool ends_in(std::string_view name, std::string_view ending) {
  return name.size() >= ending.size() &&
         lower_case(std::string(name.substr(name.size() - ending.size()))) == ending;
}

/// Returns the bytes as text.
[[nodiscard]] inline std::string_view text_in(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Returns a file's kind, with advice, from its first bytes; an empty text if the kind is unknown. A tar archive needs
/// 262 bytes, all others need 64.
[[nodiscard]] inline std::string_view known_file(std::string_view bytes) {
  using namespace std::string_view_literals;
  struct Known {
    std::size_t at;
    std::string_view magic, says;
  };
  static constexpr Known all[] = {
      {8, "WEBP", "a WebP image"},
      {0, "GIF8", "a GIF image"},
      {4, "ftypavi", "an AVIF image"},
      {4, "ftyphei", "a HEIC image"},
      {4, "ftypm", "a HEIC image or a video"},
      {4, "ftyp", "a video"},
      {0, "II*\0"sv, "a TIFF image"},
      {0, "MM\0*"sv, "a TIFF image"},
      {4, "JXL \r\n", "a JPEG XL image"},
      {4, "jP  \r\n", "a JPEG 2000 image"},
      {0, "\xff\xd8\xff", "a JPEG image"},
      {0, "\x89PNG", "a PNG image"},
      {0, "%PDF", "a PDF document"},
      {0, "\x1f\x8b\x08", "compressed by gzip (gunzip unpacks it)"},
      {0, "\3757zXZ", "compressed by xz (unxz unpacks it)"},
      {0, "\x28\xb5\x2f\xfd", "compressed by zstd (unzstd unpacks it)"},
      {0, "BZh", "compressed by bzip2 (bunzip2 unpacks it)"},
      {0, "PK\3\4", "a ZIP archive, as .npz, .xlsx and .pth files are, too"},
      {0, "\x93NUMPY", "an array of NumPy (.npy)"},
      {257, "ustar", "a tar archive"},
      {0, "version https://git-lfs", "a Git LFS pointer (git lfs pull fetches the file itself)"},
  };
  for (const auto& [at, magic, says] : all)
    if (bytes.size() > at && bytes.substr(at).starts_with(magic)) return says;
  if (bytes.starts_with("BM") && bytes.size() > 9 && bytes.substr(6, 4) == "\0\0\0\0"sv)
    return "a BMP image";
  const auto first = bytes.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  const auto word = lower_case(std::string(bytes.substr(std::min(first, bytes.size()), 16)));
  if (word.starts_with("<!doctype html") || word.starts_with("<html"))
    return "an HTML page, as servers send instead of a file";
  return word.starts_with("<svg") || word.starts_with("<?xml") ? "XML, such as an SVG drawing" : "";
}

}  // namespace dhp::detail
