// gunzip decompresses by zlib (link ZLIB::ZLIB). Readers take it as an argument: load_idx(path, gunzip).
#pragma once

#include <dhp/data/file.hpp>

#include <zlib.h>

#include <algorithm>

namespace dhp {

/// Decompresses all members; zeros may follow, as on tapes. Checks length and CRC. Errors name the file and byte.
[[nodiscard]] inline Bytes gunzip(std::span<const std::byte> packed, const std::string& name,
                                  std::size_t limit_bytes = default_file_limit_bytes) {
  constexpr std::size_t piece = std::size_t{1} << 20;  // fits zlib's 32-bit counts
  z_stream stream{};
  check(inflateInit2(&stream, 16 + MAX_WBITS) == Z_OK, "gunzip: zlib could not start");
  struct Ender {
    z_stream* stream;
    ~Ender() { inflateEnd(stream); }
  } const ender{&stream};

  Bytes out;
  std::size_t read = 0, written = 0;
  for (;;) {
    if (written == out.size()) {
      check(written < limit_bytes, name, ": unpacks to more than the limit of ", limit_bytes,
            " bytes");
      out.resize(std::min(limit_bytes, std::max(piece, written * 2)));
    }
    const auto in = std::min(piece, packed.size() - read);
    const auto room = std::min(piece, out.size() - written);
    // zlib does not write through next_in; its type lacks const in older versions.
    stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(packed.data() + read));
    stream.avail_in = static_cast<uInt>(in);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + written);
    stream.avail_out = static_cast<uInt>(room);
    const int code = inflate(&stream, Z_NO_FLUSH);
    const auto taken = in - stream.avail_in;
    const auto result = room - stream.avail_out;
    read += taken;
    written += result;
    if (code == Z_STREAM_END) {
      const auto rest = packed.subspan(read);
      if (std::ranges::all_of(rest, [](std::byte byte) { return byte == std::byte{0}; })) break;
      check(detail::is_gzip(rest), name, ", byte ", read, ": other data follow the gzip data");
      inflateReset(&stream);  // another member follows
      continue;
    }
    check(code == Z_OK || code == Z_BUF_ERROR, name, ", byte ", read, ": damaged gzip data (",
          stream.msg != nullptr ? stream.msg : "no details", ")");
    check(taken + result > 0, name, ", byte ", read, ": the gzip data ends too early: truncated");
  }
  out.resize(written);
  return out;
}

}  // namespace dhp
