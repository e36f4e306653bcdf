// Decodes JPEG by libjpeg-turbo (Debian: libjpeg-dev). All JPEGs become 8-bit RGB or gray.
#pragma once

#include <dhp/data/exif.hpp>

#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>

namespace dhp {

namespace detail {

/// Converts CMYK to RGB, rounded like Pillow. All known writers store it inverted.
[[nodiscard]] inline Image from_inverted_cmyk(const Image& inks) {
  Image result = Image::blank(inks.height, inks.width, 3);
  auto* to = result.pixels.data();
  for (const auto* ink = inks.pixels.data(); ink != inks.pixels.data() + inks.pixels.size();
       ink += 4)
    for (int color = 0; color < 3; ++color)
      *to++ = static_cast<std::uint8_t>((ink[color] * ink[3] + 127) / 255);
  return result;
}

/// Reads one file through libjpeg-turbo. On an error, libjpeg jumps out of its C code by longjmp, which runs no
/// destructors. So code in attempt() must not make objects with destructors.
class JpegReader {
 public:
  JpegReader(std::span<const std::byte> bytes, const std::string& name) : JpegReader(name) {
    attempt([&] {
      jpeg_create_decompress(&info_);
      info_.progress = &progress_;
      jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
      jpeg_read_header(&info_, TRUE);
    });
  }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;
  ~JpegReader() { jpeg_destroy_decompress(&info_); }

  [[nodiscard]] jpeg_decompress_struct& info() { return info_; }
  void attempt(const auto& step) {
    if (setjmp(before_) != 0) fail(name_, ": damaged JPEG (", problem_, ")");
    step();
  }

  /// Returns the pixels in `box`; call it after jpeg_start_decompress().
  [[nodiscard]] Image read(const Box& box) {
    const auto channels = as_size(info_.output_components);
    Image result = Image::blank(box.height, box.width, info_.output_components);
    // Colors are interpolated from neighbors, so a cut needs two more pixels on each side.
    constexpr int more = 2;
    const int first = std::max(0, box.left - more);
    const int last = std::min(static_cast<int>(info_.output_width), box.left + box.width + more);
    auto left = static_cast<JDIMENSION>(first), width = static_cast<JDIMENSION>(last - first);
    const bool cut = width < info_.output_width;
    constexpr int lines = 4;  // most lines that libjpeg returns from one call
    const auto line_bytes = info_.output_width * channels;
    std::vector<std::uint8_t> buffer(lines * line_bytes);
    attempt([&] {
      if (cut) jpeg_crop_scanline(&info_, &left, &width);
      if (box.top > 0) jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(box.top));
      JSAMPROW rows[lines];
      for (std::size_t at = 0; at < lines; ++at) rows[at] = buffer.data() + at * line_bytes;
      const auto before = (as_size(box.left) - left) * channels;
      for (int y = 0; y < box.height;) {
        const auto wanted = static_cast<JDIMENSION>(std::min(lines, box.height - y));
        const auto given = jpeg_read_scanlines(&info_, rows, wanted);
        for (JDIMENSION at = 0; at < given; ++at)
          std::memcpy(result.pixels.data() + result.at(y++, 0), rows[at] + before, result.at(1, 0));
      }
      if (info_.output_scanline == info_.output_height) jpeg_finish_decompress(&info_);
    });
    // Rows below the box are not read, but the file must have its end.
    const std::span rest(info_.src->next_input_byte, info_.src->bytes_in_buffer);
    const auto end = std::array<JOCTET, 2>{0xff, JPEG_EOI};
    check(jpeg_input_complete(&info_) || info_.unread_marker == JPEG_EOI ||
              std::find_end(rest.begin(), rest.end(), end.begin(), end.end()) != rest.end(),
          name_, ": damaged JPEG (it has no end)");
    return result;
  }

 private:
  explicit JpegReader(const std::string& name) : name_(name) {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr info) {
      auto& reader = *static_cast<JpegReader*>(info->client_data);
      info->err->format_message(info, reader.problem_);
      std::longjmp(reader.before_, 1);
    };
    // On damage libjpeg only warns and fills the gaps with gray; here damage is an error. Harmless oddities pass.
    errors_.emit_message = [](j_common_ptr info, int level) {
      const int code = info->err->msg_code;
      if (level < 0 && code != JWRN_EXTRANEOUS_DATA && code != JWRN_ADOBE_XFORM &&
          code != JWRN_JFIF_MAJOR)
        info->err->error_exit(info);
    };
    // A small file can request thousands of passes over a large image; this limits them.
    progress_.progress_monitor = [](j_common_ptr info) {
      auto& reader = *static_cast<JpegReader*>(info->client_data);
      if (reader.info_.input_scan_number <= 500) return;
      std::strcpy(reader.problem_, "more than 500 scans");
      std::longjmp(reader.before_, 1);
    };
    info_.client_data = this;
  }

  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf before_{};
  char problem_[JMSG_LENGTH_MAX] = {};
  const std::string& name_;
};

[[nodiscard]] inline Image decode_jpeg(std::span<const std::byte> bytes, const std::string& name,
                                       const DecodeOptions& options = {}) {
  JpegReader reader(bytes, name);
  auto& info = reader.info();
  check_decode(info.image_height, info.image_width, name, options);
  const bool inks = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  // libjpeg's gray of colors is their luma, which differs from Pillow's where the file's colors are beyond 0 to 255.
  const bool gray = options.channels == 1 && info.jpeg_color_space == JCS_GRAYSCALE;
  info.out_color_space = inks ? JCS_CMYK : gray ? JCS_GRAYSCALE : JCS_RGB;
  // At 1/2, 1/4 or 1/8 size, the decoder drops the high frequencies of each block of 8 x 8 pixels.
  const auto least = static_cast<unsigned>(options.min_side);
  const auto side = std::min(info.image_height, info.image_width);
  while (least > 0 && info.scale_denom < 8 * info.scale_num &&
         (side + info.scale_denom - 1) / info.scale_denom >= 2 * least)
    info.scale_denom *= 2;
  reader.attempt([&] { jpeg_start_decompress(&info); });
  const Box all{0, 0, static_cast<int>(info.output_height), static_cast<int>(info.output_width)};
  const int orientation = jpeg_orientation(bytes);
  const bool in_part = options.part && !(options.exif && orientation != 1);
  Image result = reader.read(in_part ? options.part(all.height, all.width) : all);
  if (inks) result = from_inverted_cmyk(result);
  if (result.channels != options.channels) make_gray(result);
  return oriented(std::move(result), orientation, options);
}
}  // namespace detail

[[nodiscard]] inline Decoder jpeg_decoder() {
  return {{".jpg", ".jpeg", ".jfif", ".jpe"}, &detail::decode_jpeg, "\xff\xd8"};
}

}  // namespace dhp
