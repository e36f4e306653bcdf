// FileLock: a lock that at most one process holds, on this host or on all hosts that share the file system.
#pragma once

#include <dhp/comm/rendezvous/address.hpp>
#include <dhp/core/open_file.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

namespace dhp {

/// Thrown if another run writes to a folder or a file.
class InUse : public Error {
 public:
  using Error::Error;
};

namespace detail {

/// A lock on a file. The operating system releases it when the holding process ends, even by a crash.
class FileLock : NonCopyable {
 public:
  /// Makes the file, which is never removed. Throws Error if it cannot.
  explicit FileLock(const std::string& path)
      : path_(path), file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    check_system(file_ >= 0, "cannot make ", path);
  }
  ~FileLock() {
    if (named_) (void)!::ftruncate(file_, 0);
    ::close(file_);
  }

  /// Tries to take the lock and returns whether it is held now. Throws Error if the file system has no locks.
  [[nodiscard]] bool try_lock() {
    bool held = false;
    do held = ::flock(file_, LOCK_EX | LOCK_NB) == 0;
    while (!held && errno == EINTR);
    check_system(held || errno == EWOULDBLOCK, "cannot lock ", path_);
    return held;
  }
  /// Writes the name of this process into the file. Only for files without other content.
  void name_holder() {
    const auto name = process_name();
    named_ = ::ftruncate(file_, 0) == 0 && ::pwrite(file_, name.data(), name.size(), 0) > 0;
  }

  /// Locks a file that only one run may write to. Throws InUse if another run still holds the lock after patience_s
  /// seconds; the message contains `what` and, with names_holder, the holder. Throws Error if there are no locks.
  [[nodiscard]] static std::unique_ptr<FileLock> of_run(const std::string& path,
                                                        const std::string& what, bool names_holder,
                                                        double patience_s = 0) {
    auto lock = std::make_unique<FileLock>(path);
    const auto begun = std::chrono::steady_clock::now();
    while (!lock->try_lock()) {
      if (std::chrono::steady_clock::now() - begun >= std::chrono::duration<double>(patience_s))
        throw InUse(concat(what, " is in use by another run",
                           names_holder ? ": " + text_of(path) : std::string(),
                           "; wait for its end or stop it, or choose another one"));
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (names_holder) lock->name_holder();
    return lock;
  }

 private:
  std::string path_;
  int file_;
  bool named_ = false;
};

}  // namespace detail
}  // namespace dhp
