// The file of an option for a result. It is checked at the start, and written at the end.
#pragma once

#include <dhp/core/open_file.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

namespace examples {

/// Without a path nothing is written.
class OutputFile {
 public:
  /// Throws if the file cannot be written. Does not change it.
  OutputFile(std::string option, std::string path)
      : option_(std::move(option)), path_(std::move(path)) {
    using std::filesystem::file_type;
    std::error_code none;
    const auto kind = std::filesystem::status(path_, none).type();
    is_stream_ = kind == file_type::character || kind == file_type::fifo;
    if (path_.empty() || is_stream_) return;
    check_written(std::ofstream(path_, std::ios::app).good());
    if (kind == file_type::not_found && !std::filesystem::is_symlink(path_))
      std::filesystem::remove(path_);
  }

  [[nodiscard]] bool is_stream() const { return is_stream_; }
  /// Replaces the file whole, or not at all. A pipe or a terminal gets the text.
  void write(const std::string& text) const {
    if (path_.empty()) return;
    if (!is_stream_) return dhp::replace_file(path_, text);
    check_written((std::ofstream(path_, std::ios::binary) << text << std::flush).good());
  }

 private:
  void check_written(bool written) const {
    dhp::detail::check_system(written, "cannot write ", option_, " ", path_);
  }

  std::string option_, path_;
  bool is_stream_ = false;
};

}  // namespace examples
