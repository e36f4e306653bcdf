// JPEG through libjpeg(-turbo) (link JPEG::JPEG). Its errors leave by longjmp, so the functions that
// call setjmp are C in spirit: nothing in them has a destructor, and what must be freed lives outside.
#pragma once

#include <dhp/data/decoder.hpp>

#include <jerror.h>
#include <jpeglib.h>

#include <csetjmp>
#include <cstdio>

namespace dhp {

/// A decompression under way.
struct JpegRun {
  jpeg_decompress_struct info;
  jpeg_error_mgr errors;
  jpeg_progress_mgr progress;
  std::jmp_buf escape;
  char text[JMSG_LENGTH_MAX];

  static JpegRun& of(j_common_ptr common) { return *static_cast<JpegRun*>(common->client_data); }

  [[noreturn]] static void on_error(j_common_ptr common) {
    auto& run = of(common);
    common->err->format_message(common, run.text);
    std::longjmp(run.escape, 1);
  }
  // libjpeg paints what is missing grey and warns; here a damaged image is an error.
  static void on_message(j_common_ptr common, int level) {
    const int code = common->err->msg_code;
    const bool harmless =
        code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR;
    if (level < 0 && !harmless) on_error(common);
  }
  // A small file can ask for thousands of passes over a large image.
  static void on_progress(j_common_ptr common) {
    constexpr int most_scans = 500;
    auto& run = of(common);
    if (run.info.input_scan_number <= most_scans) return;
    std::snprintf(run.text, sizeof run.text, "more than %d scans", most_scans);
    std::longjmp(run.escape, 1);
  }

  /// Reads the header; false: see text.
  [[nodiscard]] bool open(const unsigned char* bytes, std::size_t size) {
    info.err = jpeg_std_error(&errors);
    info.client_data = this;
    errors.error_exit = &on_error;
    errors.emit_message = &on_message;
    if (setjmp(escape) != 0) return false;
    jpeg_create_decompress(&info);  // keeps err and client_data
    progress.progress_monitor = &on_progress;
    info.progress = &progress;
    jpeg_mem_src(&info, bytes, static_cast<unsigned long>(size));
    jpeg_read_header(&info, TRUE);
    return true;
  }
  /// Writes all rows, `stride` bytes apart; false: see text.
  [[nodiscard]] bool decode(unsigned char* pixels, std::size_t stride) {
    if (setjmp(escape) != 0) return false;
    jpeg_start_decompress(&info);
    while (info.output_scanline < info.output_height) {
      JSAMPROW row = pixels + stride * info.output_scanline;
      jpeg_read_scanlines(&info, &row, 1);
    }
    jpeg_finish_decompress(&info);
    return true;
  }
};

/// Four inks, inverted as all known writers store them, to RGB or grey.
[[nodiscard]] inline Image from_inverted_cmyk(const Image& inks, int channels) {
  Image made = Image::blank(inks.height, inks.width, channels);
  const auto count = static_cast<std::size_t>(inks.height) * static_cast<std::size_t>(inks.width);
  for (std::size_t at = 0; at < count; ++at) {
    const auto* ink = inks.pixels.data() + 4 * at;
    const int red = ink[0] * ink[3] / 255;
    const int green = ink[1] * ink[3] / 255;
    const int blue = ink[2] * ink[3] / 255;
    if (channels == 1) {  // ITU-R BT.601
      made.pixels[at] =
          static_cast<std::uint8_t>((299 * red + 587 * green + 114 * blue + 500) / 1000);
    } else {
      made.pixels[3 * at] = static_cast<std::uint8_t>(red);
      made.pixels[3 * at + 1] = static_cast<std::uint8_t>(green);
      made.pixels[3 * at + 2] = static_cast<std::uint8_t>(blue);
    }
  }
  return made;
}

[[nodiscard]] inline Image decode_jpeg(std::span<const std::byte> bytes, const std::string& name,
                                       const DecodeOptions& options = {}) {
  JpegRun run{};
  struct Destroyer {
    JpegRun* run;
    ~Destroyer() { jpeg_destroy_decompress(&run->info); }
  } const destroyer{&run};
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  check(run.open(data, bytes.size()), "", name, ": damaged JPEG (", run.text, ")");
  check_decode(run.info.image_height, run.info.image_width, name, options);
  const bool inks = run.info.jpeg_color_space == JCS_CMYK || run.info.jpeg_color_space == JCS_YCCK;
  run.info.out_color_space = inks ? JCS_CMYK : options.channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
  Image made = Image::blank(static_cast<int>(run.info.image_height),
                            static_cast<int>(run.info.image_width), inks ? 4 : options.channels);
  check(run.decode(made.pixels.data(), made.at(0, made.width)), "", name, ": damaged JPEG (",
        run.text, ")");
  return inks ? from_inverted_cmyk(made, options.channels) : made;
}

[[nodiscard]] inline Decoder jpeg_decoder() { return {{".jpg", ".jpeg"}, &decode_jpeg}; }

}  // namespace dhp
