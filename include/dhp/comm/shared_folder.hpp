// SharedFolder: a few bytes from one process to others, by a file in a folder that all of them see. A file has
// its name only when it is whole.
#pragma once

#include <dhp/core/open_file.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace dhp {

class SharedFolder {
 public:
  /// nonce: differs from start to start of the job; files of another one are not seen.
  SharedFolder(std::string folder, std::string nonce)
      : folder_(std::move(folder)), nonce_(std::move(nonce)) {
    struct stat status {};
    check(::stat(folder_.c_str(), &status) == 0 && S_ISDIR(status.st_mode),
          "the ranks cannot meet in ", folder_, ", which is no folder; see DHP_RENDEZVOUS");
    check(!nonce_.empty() && nonce_.find('/') == nonce_.npos,
          "the name of a job has letters and no slash, got \"", nonce_, "\"; see DHP_JOB");
  }

  /// Readable by this user alone. Throws where an earlier start has left a file of that name.
  void put(const std::string& name, std::span<const std::byte> bytes) const {
    const auto path = this->path(name);
    check(::access(path.c_str(), F_OK) != 0, path,
          " is there from an earlier start; give each start a DHP_JOB of its own, or a new folder");
    const auto part = concat(path, ".", ::getpid(), ".part");
    {
      OpenFile file(part, O_WRONLY | O_CREAT | O_EXCL);
      check(::chmod(part.c_str(), S_IRUSR | S_IWUSR) == 0, "cannot change the rights of ", part,
            ": ", std::strerror(errno));
      file.write(bytes);
    }
    check(::rename(part.c_str(), path.c_str()) == 0, "cannot rename ", part, " to ", path, ": ",
          std::strerror(errno));
  }
  /// Waits until the file is there; throws after timeout_s, 0: never. `bytes` is as long as the file.
  void get(const std::string& name, std::span<std::byte> bytes, double timeout_s) const {
    const auto path = this->path(name);
    const auto start = std::chrono::steady_clock::now();
    while (::access(path.c_str(), R_OK) != 0) {
      const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
      check(timeout_s == 0 || waited.count() <= timeout_s, "rank 0 has not put ", path,
            " there within ", timeout_s, " s; is it running, and is the folder shared?");
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    const OpenFile file(path, O_RDONLY);
    check(file.size() == bytes.size(), path, " has ", file.size(), " bytes, not ", bytes.size(),
          "; give each start a DHP_JOB of its own, or a new folder");
    file.read(0, bytes);
  }
  void remove(const std::string& name) const noexcept { ::unlink(path(name).c_str()); }

 private:
  [[nodiscard]] std::string path(const std::string& name) const {
    return concat(folder_, "/", name, "-", nonce_);
  }
  std::string folder_;
  std::string nonce_;
};

}  // namespace dhp
