// EventFile: a file for TensorBoard. It frames records like TensorFlow (tensorflow/core/lib/io/record_writer.h).
// Each record is an Event message of protocol buffers (tensorflow/core/util/event.proto, framework/summary.proto).
#pragma once

#include <dhp/core/crc32c.hpp>
#include <dhp/core/open_file.hpp>
#include <dhp/core/process_name.hpp>

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace examples {
namespace event_file {

/// Appends the bytes of a number, little-endian as on the host.
void append_bytes(std::string& to, auto number) {
  to.append(reinterpret_cast<const char*>(&number), sizeof number);
}

/// The fields of one message, end to end.
class Message {
 public:
  Message& varint(int field, std::uint64_t value) {
    key(field, 0);
    return number(value);
  }
  template <class T>  // double or float
  Message& fixed(int field, T value) {
    key(field, sizeof value == 8 ? 1 : 5);
    append_bytes(bytes_, value);
    return *this;
  }
  Message& text(int field, std::string_view value) {
    key(field, 2);
    number(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(int field, const Message& inner) { return text(field, inner.bytes_); }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  void key(int field, unsigned type) { number(static_cast<std::uint64_t>(field) << 3 | type); }
  Message& number(std::uint64_t value) {
    for (; value >= 128; value >>= 7) bytes_ += static_cast<char>(value | 128);
    bytes_ += static_cast<char>(value);
    return *this;
  }
  std::string bytes_;
};

/// Frames data as a record: u64 length, checksum of the length, data, checksum of the data.
[[nodiscard]] inline std::string record(const std::string& data) {
  const auto checksum = [](const std::string& text) {
    return dhp::detail::masked_crc32c(std::as_bytes(std::span(text)));
  };
  std::string result;
  append_bytes(result, static_cast<std::uint64_t>(data.size()));
  append_bytes(result, checksum(result));
  result += data;
  append_bytes(result, checksum(data));
  return result;
}

/// Returns a name with this time, process and host. TensorBoard reads a folder's files in the order of their names.
[[nodiscard]] inline std::string new_name(double wall_s) {
  char name[384];
  std::snprintf(name, sizeof name, "events.out.tfevents.%017.6f.%s.%d", wall_s,
                dhp::detail::host_name().c_str(), static_cast<int>(::getpid()));
  return name;
}

/// Returns the directory, which it creates if necessary.
inline const std::string& made_directory(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  dhp::check(!error, "cannot write --tensorboard ", directory, ": ", error.message());
  return directory;
}

}  // namespace event_file

class EventFile {
 public:
  /// Returns the latest time in the names of a directory's event files; 0 if there are none.
  [[nodiscard]] static double last_in(const std::string& directory) {
    constexpr std::string_view start = "events.out.tfevents.";
    double last = 0;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
      const auto name = entry.path().filename().string();
      double time = 0;
      if (name.starts_with(start))
        std::from_chars(name.data() + start.size(), name.data() + name.size(), time);
      last = std::max(last, time);
    }
    return last;
  }

  /// Opens a new file in the directory. Files of the same run before an interruption may be there: TensorBoard then
  /// ignores their events from first_step on. The file's name follows theirs even if this host's clock is behind.
  /// Throws Error if the file cannot be written.
  EventFile(const std::string& directory, std::int64_t first_step)
      : file_(event_file::made_directory(directory) + "/" +
                  event_file::new_name(std::max(now_s(), last_in(directory) + 1e-3)),
              O_WRONLY | O_CREAT | O_EXCL) {
    write(0, event_file::Message().text(3, "brain.Event:2"));
    constexpr std::uint64_t start = 1;  // value of SessionLog's status
    write(first_step, event_file::Message().message(7, event_file::Message().varint(1, start)));
  }

  /// Writes one event to the file before it returns.
  void scalars(std::int64_t step, const std::vector<std::pair<std::string, double>>& values) {
    event_file::Message summary;
    for (const auto& [tag, value] : values)
      summary.message(1, event_file::Message().text(1, tag).fixed(2, static_cast<float>(value)));
    write(step, event_file::Message().message(5, summary));
  }
  /// Writes Markdown for TensorBoard's plugin "text".
  void text(std::int64_t step, const std::string& tag, const std::string& markdown) {
    using event_file::Message;
    constexpr std::uint64_t dt_string = 7, data_class_tensor = 2;
    const auto shape = Message().message(2, Message().varint(1, 1));  // one dim, of size 1
    const auto tensor = Message().varint(1, dt_string).message(2, shape).text(8, markdown);
    const auto metadata =
        Message().message(1, Message().text(1, "text")).varint(4, data_class_tensor);
    const auto value = Message().text(1, tag).message(8, tensor).message(9, metadata);
    write(step, Message().message(5, Message().message(1, value)));
  }

 private:
  [[nodiscard]] static double now_s() {
    const auto since = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration<double>(since).count();
  }
  void write(std::int64_t step, const event_file::Message& what) {
    event_file::Message event;
    event.fixed(1, now_s()).varint(2, static_cast<std::uint64_t>(step));
    file_.write(event_file::record(event.bytes() + what.bytes()));
  }

  dhp::OpenFile file_;
};

}  // namespace examples
