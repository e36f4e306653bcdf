// The format of store connections: frames of version, type, length and payload. Reading malformed input never throws.
#pragma once

#include <dhp/core/fields.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace dhp::detail {

struct Frame {
  static constexpr char version = 4;
  static constexpr std::size_t header_bytes = 6;
  std::uint8_t type;
  std::string payload;
};

[[nodiscard]] inline std::string write_frame(std::uint8_t type, std::string_view payload) {
  std::string frame{Frame::version, static_cast<char>(type)};
  append_field(frame, payload);
  return frame;
}

/// Splits input into frames. Buffers at most one maximal frame plus the latest input.
class FrameReader {
 public:
  /// longest: limit of a payload in bytes. Longer frames are refused.
  explicit FrameReader(std::size_t longest) : longest_(longest) {}
  void allow(std::size_t longest) { longest_ = longest; }

  /// Before feeding more, call next() until it returns nullopt.
  void feed(std::string_view bytes) {
    if (refusal_.empty()) buffer_ += bytes;
  }
  /// Returns nullopt if the frame is incomplete or refused.
  [[nodiscard]] std::optional<Frame> next() {
    FieldReader fields(buffer_);
    const auto first = fields.bytes(2);
    const auto length = fields.number();
    if (!buffer_.empty() && buffer_[0] != Frame::version)
      refusal_ = "its bytes are no frames of this version of a store";
    else if (length && *length > longest_) refusal_ = "a frame is longer than is allowed";
    if (!refusal_.empty() || !length) return std::nullopt;
    auto payload = fields.bytes(*length);
    if (!payload) return std::nullopt;
    buffer_.erase(0, Frame::header_bytes + *length);
    return Frame{static_cast<std::uint8_t>((*first)[1]), std::move(*payload)};
  }
  /// Returns why frames are refused, as the end of a sentence; an empty text if they are not.
  [[nodiscard]] const std::string& refusal() const { return refusal_; }
  [[nodiscard]] std::size_t buffered_bytes() const { return buffer_.size(); }

 private:
  std::size_t longest_;
  std::string buffer_, refusal_;
};

}  // namespace dhp::detail
