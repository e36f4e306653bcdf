// Frames: what goes over the connections of a store. Six bytes of header (version, type, length of the payload),
// the payload, and once both sides have a key, an HMAC over direction, number, header and payload: a frame that
// is changed, repeated, left out, out of order or sent back is refused. Reading never throws because of what the
// bytes are, and keeps no more of them than the longest payload and what it was fed last.
#pragma once

#include <dhp/comm/fields.hpp>
#include <dhp/comm/hmac.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace dhp {

struct Frame {
  std::uint8_t type;
  std::string payload;
};

/// Which side writes the frame.
enum class FrameSide : char { client = 'c', server = 's' };

/// The tags of the frames in one direction of one connection.
class FrameSeal {
 public:
  FrameSeal(std::string key, FrameSide writer) : key_(std::move(key)), writer_(writer) {}

  /// Of the next frame: header and payload.
  [[nodiscard]] std::string next(std::string_view frame) {
    std::string message(1, static_cast<char>(writer_));
    append_number(message, static_cast<std::uint32_t>(number_ >> 32));
    append_number(message, static_cast<std::uint32_t>(number_));
    ++number_;
    message += frame;
    return hmac_sha256(key_, message);
  }

 private:
  std::string key_;
  FrameSide writer_;
  std::uint64_t number_ = 0;
};

class FrameWriter {
 public:
  static constexpr std::uint8_t version = 1;
  static constexpr std::size_t header_bytes = 6;

  /// Frames from here on carry tags.
  void seal(std::string key, FrameSide writer) { seal_.emplace(std::move(key), writer); }

  [[nodiscard]] std::string write(std::uint8_t type, std::string_view payload) {
    std::string frame{static_cast<char>(version), static_cast<char>(type)};
    append_field(frame, payload);
    if (seal_) frame += seal_->next(frame);
    return frame;
  }

 private:
  std::optional<FrameSeal> seal_;
};

class FrameReader {
 public:
  /// longest: of a payload, in bytes.
  explicit FrameReader(std::size_t longest) : longest_(longest) {}

  /// Frames from here on must carry tags, and may be that long.
  void seal(std::string key, FrameSide writer, std::size_t longest) {
    seal_.emplace(std::move(key), writer);
    longest_ = longest;
  }

  /// Before more is fed, next() should have been called until it had nothing.
  void feed(std::string_view bytes) {
    if (!refusal_.empty()) return;
    buffer_.erase(0, at_);
    at_ = 0;
    buffer_ += bytes;
  }
  /// None: it is not whole yet, or refused.
  [[nodiscard]] std::optional<Frame> next() {
    const auto fed = std::string_view(buffer_).substr(at_);
    if (!refusal_.empty() || fed.empty()) return std::nullopt;
    if (fed[0] != static_cast<char>(FrameWriter::version))
      return refuse("its bytes are no frames of this version of a store");
    FieldReader header(fed.substr(0, FrameWriter::header_bytes));
    const auto first = header.bytes(2);
    const auto length = header.number();
    if (!first || !length) return std::nullopt;
    if (*length > longest_) return refuse("a frame is longer than is allowed");
    const std::size_t whole = FrameWriter::header_bytes + *length;
    if (fed.size() < whole + (seal_ ? hmac_bytes : 0)) return std::nullopt;
    if (seal_ &&
        !equal_in_constant_time(seal_->next(fed.substr(0, whole)), fed.substr(whole, hmac_bytes)))
      return refuse(
          "a frame was not written with the key of this connection, or not in this order");
    at_ += whole + (seal_ ? hmac_bytes : 0);
    return Frame{static_cast<std::uint8_t>((*first)[1]),
                 std::string(fed.substr(FrameWriter::header_bytes, *length))};
  }
  /// Why nothing is read any more, as the end of a sentence; empty: nothing was refused.
  [[nodiscard]] const std::string& refusal() const { return refusal_; }
  [[nodiscard]] std::size_t buffered_bytes() const { return buffer_.size() - at_; }

 private:
  [[nodiscard]] std::nullopt_t refuse(const char* why) {
    refusal_ = why;
    std::string().swap(buffer_);
    at_ = 0;
    return std::nullopt;
  }

  std::size_t longest_;
  std::optional<FrameSeal> seal_;
  std::string buffer_;
  std::size_t at_ = 0;  // what comes before has been read
  std::string refusal_;
};

}  // namespace dhp
