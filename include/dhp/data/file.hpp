// Reads files, and parses bytes with a bounds-checked cursor. Errors name the file and the offset.
#pragma once

#include <dhp/core/open_file.hpp>
#include <dhp/data/host_array.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace dhp {

using Bytes = std::vector<std::byte>;

/// Returns the files below a directory, sorted bytewise by path. Skips hidden files and directories. Follows links,
/// except those to a directory that contains the link.
[[nodiscard]] inline std::vector<std::string> files_below(const std::string& path) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  std::vector<std::string> above;  // real paths of this directory's ancestors
  const auto add = [&](const fs::path& directory, const auto& self) -> void {
    std::error_code error;
    const auto real = (fs::canonical(directory, error) / "").string();
    if (std::any_of(above.begin(), above.end(), [&](auto& one) { return one.starts_with(real); }))
      return;
    above.push_back(real);
    for (fs::directory_iterator at(directory, error), end; !error && at != end;
         at.increment(error)) {
      std::error_code unknown;  // a dangling link is listed; reading it fails
      if (at->path().filename().string().starts_with('.')) continue;
      if (at->is_directory(unknown)) self(at->path(), self);
      else files.push_back(at->path().string());
    }
    check(!error, directory.string(), ": ", error.message());
    above.pop_back();
  };
  add(path, add);
  std::sort(files.begin(), files.end());
  return files;
}

/// Default limit of a file's size, both compressed and decompressed.
inline constexpr std::size_t default_file_limit_bytes = std::size_t{64} << 30;

/// Reads a file. Throws Error if it is missing, not a regular file, empty, unreadable or too large.
[[nodiscard]] inline Bytes read_file(const std::string& path,
                                     std::size_t limit_bytes = default_file_limit_bytes) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  check(std::filesystem::status_known(status), path, ": ", error.message());
  check(std::filesystem::exists(status), path, ": no such file");
  check(!std::filesystem::is_directory(status), path, ": is a directory, not a file");
  check(std::filesystem::is_regular_file(status), path, ": is not a regular file");
  const OpenFile file(path, O_RDONLY);
  const auto size = file.size();
  check(size > 0, path, ": the file is empty");
  check(size <= limit_bytes, path, ": has ", size, " bytes, above the limit of ", limit_bytes);
  Bytes bytes(detail::as_size(size));
  file.read(0, bytes);
  return bytes;
}

namespace detail {
/// A function that decompresses: (bytes, name for errors, limit of the result) -> bytes.
using Unpack = Bytes (*)(std::span<const std::byte> packed, const std::string& name,
                         std::size_t limit_bytes);

[[nodiscard]] inline bool is_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

/// Reads a file. If it is gzip-compressed, decompresses it with `unpack` (gunzip of data/gzip.hpp).
[[nodiscard]] inline Bytes read_unpacked(const std::string& path, Unpack unpack,
                                         std::size_t limit_bytes = default_file_limit_bytes) {
  auto bytes = read_file(path, limit_bytes);
  if (!is_gzip(bytes)) return bytes;
  check(unpack != nullptr, path,
        ": is gzip-compressed, and this program was built without zlib; unpack it first (gunzip)");
  return unpack(bytes, path, limit_bytes);
}

/// Reads bytes in order; throws past the end.
class ByteCursor {
 public:
  ByteCursor(std::span<const std::byte> bytes, std::string name)
      : bytes_(bytes), name_(std::move(name)) {}

  [[nodiscard]] std::size_t left() const { return bytes_.size() - offset_; }
  [[nodiscard]] std::span<const std::byte> take(std::size_t count, const char* what) {
    if (count > left())
      reject("ends in the middle of ", what, ": ", count, " bytes wanted, ", left(), " left");
    const auto part = bytes_.subspan(offset_, count);
    offset_ += count;
    return part;
  }
  /// Reads a big-endian unsigned number of `count` bytes.
  [[nodiscard]] std::uint64_t big_endian(std::size_t count, const char* what) {
    std::uint64_t value = 0;
    for (const auto byte : take(count, what)) value = value << 8 | std::to_integer<unsigned>(byte);
    return value;
  }
  [[nodiscard]] std::uint64_t little_endian(std::size_t count, const char* what) {
    std::uint64_t value = 0;
    int shift = 0;
    for (const auto byte : take(count, what)) {
      value |= std::to_integer<std::uint64_t>(byte) << shift;
      shift += 8;
    }
    return value;
  }
  /// Throws Error("NAME, byte OFFSET: ...").
  [[noreturn]] void reject(const auto&... parts) const {
    throw Error(concat(name_, ", byte ", offset_, ": ", parts...));
  }

 private:
  std::span<const std::byte> bytes_;
  std::string name_;
  std::size_t offset_ = 0;
};

/// Returns the rest of the bytes as an array. Throws if their number does not match the shape or exceeds the limit.
[[nodiscard]] inline HostArray take_array(ByteCursor& at, DType dtype,
                                          std::span<const std::uint64_t> extents,
                                          std::size_t limit_bytes) {
  std::uint64_t bytes = size_of(dtype);
  for (const auto extent : extents)
    if (__builtin_mul_overflow(bytes, extent, &bytes) || bytes > limit_bytes)
      at.reject("its dims exceed the limit of ", limit_bytes, " bytes");
  const auto elements = at.take(as_size(bytes), "the elements");
  if (at.left() != 0) at.reject(at.left(), " bytes more than its header says");
  Shape shape;
  for (const auto extent : extents) shape.push_back(static_cast<std::int64_t>(extent));
  return {dtype, shape, elements};
}
}  // namespace detail

}  // namespace dhp
