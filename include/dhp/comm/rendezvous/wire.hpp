// The format of store connections: frames of version, length and payload. Reading malformed input never throws.
#pragma once

#include <dhp/core/fields.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace dhp::detail {

inline constexpr char frame_version = 5;
inline constexpr std::size_t frame_header_bytes = 5;

[[nodiscard]] inline std::string write_frame(std::string_view payload) {
  std::string frame(1, frame_version);
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
  /// Returns the payload of the next frame; nullopt if it is incomplete or refused.
  [[nodiscard]] std::optional<std::string> next() {
    FieldReader fields(buffer_);
    (void)fields.bytes(1);
    const auto length = fields.number();
    if (!buffer_.empty() && buffer_[0] != frame_version)
      refusal_ = "its bytes are no frames of this version of a store";
    else if (length && *length > longest_) refusal_ = "a frame is longer than is allowed";
    if (!refusal_.empty() || !length) return std::nullopt;
    auto payload = fields.bytes(*length);
    if (payload) buffer_.erase(0, frame_header_bytes + *length);
    return payload;
  }
  /// Returns why frames are refused, as the end of a sentence; an empty text if they are not.
  [[nodiscard]] const std::string& refusal() const { return refusal_; }
  [[nodiscard]] std::size_t buffered_bytes() const { return buffer_.size(); }

 private:
  std::size_t longest_;
  std::string buffer_, refusal_;
};

}  // namespace dhp::detail
