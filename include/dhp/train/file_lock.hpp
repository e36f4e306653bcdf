// FileLock: a lock that at most one process holds, on this host or on all hosts that share the file system.
#pragma once

#include <dhp/core/open_file.hpp>
#include <dhp/core/poll_until.hpp>
#include <dhp/core/process_name.hpp>

#include <memory>
#include <string>

namespace dhp {

/// Thrown if another run writes to a folder or a file.
class InUse : public Error {
 public:
  using Error::Error;
};

namespace detail {

/// A lock on a file. The operating system releases it when the holding process ends, even by a crash.
class FileLock : OpenFile {
 public:
  /// Makes the file, which is never removed. Throws Error if it cannot.
  explicit FileLock(const std::string& path) : OpenFile(path, O_RDWR | O_CREAT) {}
  ~FileLock() {
    if (named_) clear();
  }
  using OpenFile::try_lock;

  /// Locks a file that only one run may write to. Throws InUse if another run still holds the lock after patience_s
  /// seconds; the message contains `what` and, with names_holder, the holder. Throws Error if there are no locks.
  [[nodiscard]] static std::unique_ptr<FileLock> of_run(const std::string& path,
                                                        const std::string& what, bool names_holder,
                                                        double patience_s = 0) {
    auto lock = std::make_unique<FileLock>(path);
    if (!poll_until([&] { return lock->try_lock(); }, patience_s))
      throw InUse(concat(what, " is in use by another run",
                         names_holder ? ": " + text_of(path) : std::string(),
                         "; wait for its end or stop it, or choose another one"));
    try {
      if (names_holder && (lock->named_ = lock->clear())) lock->write(process_name());
    } catch (const Error&) {  // the disk is full
    }
    return lock;
  }

 private:
  bool named_ = false;
};

}  // namespace detail
}  // namespace dhp
