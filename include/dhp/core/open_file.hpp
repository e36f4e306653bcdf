// OpenFile, whose errors name the path, and replace_file(), which replaces a file atomically.
#pragma once

#include <dhp/core/system_error.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

namespace dhp {

/// A file descriptor that the destructor closes. Positions and sizes are in bytes.
class OpenFile : detail::NonCopyable {
 public:
  /// flags: as in open(2). A new file gets permissions 0666 less the umask. Opening a pipe for reading does not wait
  /// for its writer.
  OpenFile(const std::string& path, int flags)
      : path_(path),
        fd_(::open(path.c_str(), flags | O_CLOEXEC | (flags == O_RDONLY ? O_NONBLOCK : 0), 0666)) {
    detail::check_system(fd_ >= 0, "cannot open ", path);
  }
  ~OpenFile() { ::close(fd_); }

  [[nodiscard]] std::uint64_t size() const {
    struct stat status {};
    detail::check_system(::fstat(fd_, &status) == 0, "cannot look at ", path_);
    check(S_ISREG(status.st_mode), path_, " is not a file");
    return static_cast<std::uint64_t>(status.st_size);
  }
  void read(std::uint64_t at, std::span<std::byte> to) const {
    while (!to.empty()) {
      const auto got = ::pread(fd_, to.data(), to.size(), static_cast<off_t>(at));
      if (got < 0 && errno == EINTR) continue;
      detail::check_system(got >= 0, "cannot read ", path_, " at byte ", at);
      check(got > 0, "cannot read ", path_, " at byte ", at, ": end of file");
      at += static_cast<std::uint64_t>(got);
      to = to.subspan(detail::as_size(got));
    }
  }
  [[nodiscard]] std::string text(std::uint64_t at, std::size_t bytes) const {
    std::string found(bytes, '\0');
    read(at, std::as_writable_bytes(std::span(found)));
    return found;
  }
  void write(std::span<const std::byte> from) {
    while (!from.empty()) {
      const auto put = ::write(fd_, from.data(), from.size());
      if (put < 0 && errno == EINTR) continue;
      detail::check_system(put >= 0, "cannot write ", path_);
      from = from.subspan(detail::as_size(put));
    }
  }
  void write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }
  /// Removes the content. Returns whether it could.
  bool clear() { return ::ftruncate(fd_, 0) == 0; }
  /// Waits for other holders of the file's lock, then takes the lock. Closing the file, or the end of the process,
  /// releases it. On a file system without locks, returns at once without a lock.
  void lock() {
    while (::flock(fd_, LOCK_EX) != 0 && errno == EINTR) continue;
  }
  /// Tries to take the lock and returns whether it is held now. Throws Error if the file system has no locks.
  [[nodiscard]] bool try_lock() {
    while (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      detail::check_system(errno == EINTR || errno == EWOULDBLOCK, "cannot lock ", path_);
      if (errno != EINTR) return false;
    }
    return true;
  }
  /// Returns after all written bytes are on the disk.
  void sync() { detail::check_system(::fsync(fd_) == 0, "cannot write ", path_); }

 private:
  std::string path_;
  int fd_;
};

namespace detail {
/// Returns whether the path exists; also false if a folder on the way cannot be searched.
[[nodiscard]] inline bool is_there(const std::string& path) {
  return ::access(path.c_str(), F_OK) == 0;
}
}  // namespace detail

/// Returns the whole content of a file.
[[nodiscard]] inline std::string text_of(const std::string& path) {
  const OpenFile file(path, O_RDONLY);
  return file.text(0, detail::as_size(file.size()));
}

/// Replaces a file atomically: write(OpenFile&) fills "PATH.part", which is renamed after it is completely on the disk.
/// If the path is a symbolic link, its target is replaced. Throws Error for devices and pipes.
template <std::invocable<OpenFile&> Write>
void replace_file(std::string path, Write write) {
  struct stat status {};
  const bool exists = ::stat(path.c_str(), &status) == 0;
  check(!exists || S_ISREG(status.st_mode), path, " is not a file; give the name of one");
  check(exists || ::lstat(path.c_str(), &status) != 0 || !S_ISLNK(status.st_mode), path,
        " is a link to a file that is not there; make that file or remove the link");
  if (char* const file = exists ? ::realpath(path.c_str(), nullptr) : nullptr; file != nullptr) {
    path = file;
    ::free(file);
  }
  const auto part = path + ".part";
  try {
    OpenFile file(part, O_WRONLY | O_CREAT | O_TRUNC);
    write(file);
    file.sync();
    detail::check_system(::rename(part.c_str(), path.c_str()) == 0, "cannot rename ", part, " to ",
                         path);
  } catch (...) {
    ::unlink(part.c_str());
    throw;
  }
}
inline void replace_file(const std::string& path, std::string_view text) {
  replace_file(path, [&](OpenFile& file) { file.write(text); });
}

}  // namespace dhp
