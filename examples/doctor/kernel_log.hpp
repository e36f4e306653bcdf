// Xids: errors of GPUs by which NVIDIA's driver writes to the kernel's log, "NVRM: Xid (PCI:0000:18:00): 79, ...". NVML
// tells only of those that come while it is listening.
#pragma once

#include <dhp/core/error.hpp>

#include "finding.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace examples::doctor {

struct Xid {
  std::string bus{};  ///< "0000:18:00"
  int number = 0;
  friend bool operator==(const Xid&, const Xid&) = default;
};

/// 79: the GPU is gone; 48, 64, 74, 94, 95: memory or links are broken; 119, 120: its own processor does not answer.
/// 13, 31, 43, 45 and 68 are mistakes of programs, and nothing to say of the GPU; the others are worth a look.
[[nodiscard]] inline Verdict verdict_on_xid(int number) {
  constexpr std::array broken{48, 64, 74, 79, 94, 95, 119, 120};
  constexpr std::array of_programs{13, 31, 43, 45, 68};
  const auto among = [number](const auto& list) {
    return std::find(list.begin(), list.end(), number) != list.end();
  };
  return among(broken) ? Verdict::failed : among(of_programs) ? Verdict::ok : Verdict::warning;
}

/// Each Xid of a log once, in the order of its first line.
[[nodiscard]] inline std::vector<Xid> xids_in(std::string_view log) {
  constexpr std::string_view mark = "NVRM: Xid (PCI:";
  std::vector<Xid> found;
  for (auto at = log.find(mark); at != log.npos; at = log.find(mark, at + 1)) {
    const auto start = at + mark.size();
    const auto end = log.find("): ", start);
    if (end == log.npos) break;
    Xid xid{std::string(log.substr(start, end - start)), 0};
    const auto* const digits = log.data() + end + 3;
    const auto read = std::from_chars(digits, log.data() + log.size(), xid.number);
    const bool seen = std::find(found.begin(), found.end(), xid) != found.end();
    if (read.ec == std::errc() && !seen) found.push_back(std::move(xid));
  }
  return found;
}

/// The kernel's log since the host was started; empty with `why` where it may not be read.
[[nodiscard]] inline std::string kernel_log(std::string& why, const char* path = "/dev/kmsg") {
  const int file = ::open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) {
    why = dhp::concat("the kernel's log cannot be read: ", std::strerror(errno));
    return "";
  }
  std::string log;
  std::array<char, 8192> record{};  // the system gives one line at a time; EPIPE: some are lost
  for (;;) {
    const auto count = ::read(file, record.data(), record.size());
    if (count > 0) log.append(record.data(), static_cast<std::size_t>(count));
    else if (count == 0 || (errno != EINTR && errno != EPIPE)) break;
  }
  ::close(file);
  return log;
}

}  // namespace examples::doctor
