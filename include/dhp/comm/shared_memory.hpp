// SharedMemory: memory that other processes of the same user on the same machine can map. It has no name that could
// be left behind, and goes with the last process that maps it; whoever maps it can see whether its owner still lives.
// Linux: memfd_create(2), opened by others through /proc.
#pragma once

#include <dhp/comm/meet/crypto.hpp>
#include <dhp/core/system_error.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

namespace dhp {

/// Equal for processes that can share memory: those of one user, in one boot of one machine and the same namespaces of
/// process numbers and networks (containers and simulated hosts have their own). Empty: the system does not say.
[[nodiscard]] inline std::string memory_domain() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  if (!(file >> boot)) return {};
  auto text = concat(boot, "/", ::geteuid());
  for (const char* space : {"/proc/self/ns/pid", "/proc/self/ns/net"}) {
    struct stat seen {};
    if (::stat(space, &seen) != 0) return {};
    append_text(text, concat("/", static_cast<std::uint64_t>(seen.st_ino)));
  }
  return text;
}

class SharedMemory {
 public:
  /// Zeros, of which only what is written to is really taken. Throws Error where the system refuses.
  [[nodiscard]] static SharedMemory create(std::size_t bytes) {
    SharedMemory made;
    made.file_ = ::memfd_create("dhp", MFD_CLOEXEC);
    check_system(made.file_ >= 0, "cannot create shared memory");
    check_system(::ftruncate(made.file_, static_cast<off_t>(bytes)) == 0,
                 "cannot give a size to shared memory");
    made.map(bytes);
    // Held until this process ends, however it does.
    check_system(::flock(made.file_, LOCK_EX) == 0, "cannot lock shared memory");
    made.nonce_ = comm::hex(comm::nonce());
    std::memcpy(made.memory_, made.nonce_.data(), made.nonce_.size());
    return made;
  }
  /// What address() of its owner says. Throws Error where this process cannot reach it.
  [[nodiscard]] static SharedMemory open(const std::string& address) {
    std::istringstream text(address);
    SharedMemory opened;
    std::int64_t process = 0;
    int file = 0;
    std::size_t bytes = 0;
    check(static_cast<bool>(text >> process >> file >> bytes >> opened.nonce_),
          "not an address of shared memory: \"", address, "\"");
    opened.file_ =
        ::open(concat("/proc/", process, "/fd/", file).c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY);
    check_system(opened.file_ >= 0, "cannot open shared memory");
    struct stat seen {};
    check_system(::fstat(opened.file_, &seen) == 0, "cannot look at shared memory");
    check(S_ISREG(seen.st_mode) && seen.st_size == static_cast<off_t>(bytes) &&
              bytes > opened.nonce_.size(),
          "the shared memory of process ", process, " is not what it says");
    opened.map(bytes);
    check(std::memcmp(opened.memory_, opened.nonce_.data(), opened.nonce_.size()) == 0,
          "the shared memory of process ", process, " is another one's");
    return opened;
  }
  SharedMemory(SharedMemory&& other) noexcept
      : file_(std::exchange(other.file_, -1)),
        memory_(std::exchange(other.memory_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        nonce_(std::move(other.nonce_)) {}
  SharedMemory& operator=(SharedMemory&&) = delete;
  ~SharedMemory() {
    if (memory_ != nullptr) ::munmap(memory_, bytes_);
    if (file_ >= 0) ::close(file_);
  }

  /// What other processes open it by.
  [[nodiscard]] std::string address() const {
    return concat(::getpid(), " ", file_, " ", bytes_, " ", nonce_);
  }
  /// The first `reserved` bytes are the memory's own; the rest is aligned to as much.
  static constexpr std::size_t reserved = 4096;
  [[nodiscard]] std::byte* data() const { return memory_ + reserved; }
  [[nodiscard]] std::size_t size() const { return bytes_ - reserved; }
  /// For who has opened it: whether the process that made it has ended, or let it go.
  [[nodiscard]] bool owner_gone() const {
    if (::flock(file_, LOCK_SH | LOCK_NB) != 0) return false;
    ::flock(file_, LOCK_UN);
    return true;
  }

 private:
  SharedMemory() = default;
  void map(std::size_t bytes) {
    check(bytes > reserved, "shared memory of ", bytes, " bytes is too small");
    auto* const at =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
    check_system(at != MAP_FAILED, "cannot map shared memory");
    memory_ = static_cast<std::byte*>(at);
    bytes_ = bytes;
    ::madvise(at, bytes,
              MADV_DONTDUMP);  // a core would hold other ranks' messages; where it cannot, it does
  }

  int file_ = -1;
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
  std::string nonce_;
};

}  // namespace dhp
