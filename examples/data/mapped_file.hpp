// MappedFile: a file's bytes in memory. A page is read when it is first touched, and the processes of a host share it.
#pragma once

#include <dhp/core/system_error.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <span>
#include <string>

namespace examples {

class MappedFile : dhp::detail::NonCopyable {
 public:
  /// Throws if the file is missing or empty. Replacing the file under its name does no harm, but truncating it ends
  /// this process.
  explicit MappedFile(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    dhp::detail::check_system(file >= 0, "cannot open ", path);
    struct stat status {};
    const bool known = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0;
    auto* const space = known ? ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ,
                                       MAP_SHARED, file, 0)
                              : MAP_FAILED;
    ::close(file);
    dhp::check(known, path, " is no file, or an empty one");
    dhp::detail::check_system(space != MAP_FAILED, "cannot map ", path);
    bytes_ = {static_cast<const std::byte*>(space), static_cast<std::size_t>(status.st_size)};
  }
  ~MappedFile() { ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size()); }

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace examples
