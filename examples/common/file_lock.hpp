// FileLock: one process at a time, of this host or of all that share the file system. RunLock: one run at a time.
#pragma once

#include <dhp/comm/meet/address.hpp>
#include <dhp/core/open_file.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

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
  [[nodiscard]] bool try_lock() const {
    const bool held = ::flock(file_, LOCK_EX | LOCK_NB) == 0;
    dhp::check_system(held || errno == EWOULDBLOCK || errno == EINTR, "cannot lock ", path_);
    return held;
  }
  /// What the file has from now on.
  void put(const std::string& text) const {
    const auto size = static_cast<ssize_t>(text.size());
    dhp::check_system(
        ::ftruncate(file_, 0) == 0 && ::pwrite(file_, text.data(), text.size(), 0) == size,
        "cannot write ", path_);
  }

 private:
  std::string path_;
  int file_;
};

/// Another run has the lock.
class InUse : public dhp::Error {
 public:
  explicit InUse(const std::string& sentence) : Error(sentence) {}
};

/// What one run alone writes to. Meanwhile its lock file names the process.
class RunLock {
 public:
  /// what: of the sentence. Throws InUse where another one has it for so long, and Error where there are no locks.
  RunLock(const std::string& path, const std::string& what, double patience_s) : lock_(path) {
    const auto begun = std::chrono::steady_clock::now();
    while (!lock_.try_lock()) {
      if (std::chrono::steady_clock::now() - begun >= std::chrono::duration<double>(patience_s)) {
        const auto holder = dhp::text_of(path);
        throw InUse(dhp::concat(what, " is in use by another run", holder.empty() ? "" : ": ",
                                holder, "; wait for its end or stop it, or choose another one"));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    lock_.put(dhp::process_name());
  }
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  ~RunLock() {
    try {
      lock_.put("");
    } catch (const dhp::Error&) {  // a name that is left there does no harm
    }
  }

 private:
  FileLock lock_;
};

}  // namespace examples
