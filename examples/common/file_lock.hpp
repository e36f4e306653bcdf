// FileLock: one process at a time, of this host or of all that share the file system.
#pragma once

#include <dhp/core/system_error.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace examples {

/// The system gives the lock back when its holder ends, however that is.
class FileLock {
 public:
  /// Makes the file, which stays. Throws where that is not allowed.
  explicit FileLock(const std::string& path)
      : path_(path), file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    dhp::check_system(file_ >= 0, "cannot make ", path);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock() { ::close(file_); }

  /// Whether it is held now. Throws where the file system has no locks.
  [[nodiscard]] bool try_lock() {
    const bool held = ::flock(file_, LOCK_EX | LOCK_NB) == 0;
    dhp::check_system(held || errno == EWOULDBLOCK || errno == EINTR, "cannot lock ", path_);
    return held;
  }

 private:
  std::string path_;
  int file_;
};

}  // namespace examples
