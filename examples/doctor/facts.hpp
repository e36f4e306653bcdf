// The facts that every rank can tell: its program and libraries, its host.
#pragma once

#include <dhp/core/config.hpp>
#include <dhp/core/hash.hpp>

#include "differences.hpp"

#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#if defined(DHP_HAS_PROCESSES)
#include <openssl/crypto.h>
#include <openssl/opensslv.h>
#endif
#if defined(DHP_HAS_GLOO)
#include <gloo/config.h>
#endif

namespace examples::doctor {

/// What follows "key" and ':' or '=' in the first line that begins with it; empty where there is none.
[[nodiscard]] inline std::string value_in(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const auto start = line.find_first_not_of(" \t:=\"", key.size());
    if (start == line.npos) return "";
    return line.substr(start, line.find_last_not_of(" \t\"") + 1 - start);
  }
  return "";
}

/// Cores that this process may use.
[[nodiscard]] inline int usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof cores, &cores) == 0) return CPU_COUNT(&cores);
  return static_cast<int>(std::thread::hardware_concurrency());
}

[[nodiscard]] inline std::string cpu_model() {
  const auto model = value_in("/proc/cpuinfo", "model name");
  return model.empty() ? "?" : model;
}

[[nodiscard]] inline std::string gibibytes(double bytes) {
  return dhp::concat(static_cast<std::int64_t>(bytes / 0x1p30 + 0.5), " GiB");
}

[[nodiscard]] inline std::string compiler() {
#if defined(__clang__)
  return dhp::concat("clang ", __clang_major__, ".", __clang_minor__, ".", __clang_patchlevel__);
#elif defined(__GNUC__)
  return dhp::concat("g++ ", __GNUC__, ".", __GNUC_MINOR__, ".", __GNUC_PATCHLEVEL__);
#else
  return "?";
#endif
}

/// A number for the bytes of this very program.
[[nodiscard]] inline std::string program_hash() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%016llx",
                static_cast<unsigned long long>(dhp::fnv1a(bytes)));
  return text.data();
}

[[nodiscard]] inline std::vector<Fact> host_facts() {
  std::vector<Fact> facts;
  facts.push_back(
      {"dhp", dhp::concat(dhp::version_major, ".", dhp::version_minor, ".", dhp::version_patch),
       Verdict::failed});
  facts.push_back({"program", program_hash()});
  facts.push_back({"compiler", compiler()});
#if defined(DHP_HAS_GLOO)
  facts.push_back(
      {"Gloo", dhp::concat(GLOO_VERSION_MAJOR, ".", GLOO_VERSION_MINOR, ".", GLOO_VERSION_PATCH),
       Verdict::failed});
#endif
#if defined(DHP_HAS_PROCESSES)
  facts.push_back({"OpenSSL", OpenSSL_version(OPENSSL_VERSION_STRING)});
#endif
  facts.push_back({"CPU", cpu_model()});
  facts.push_back({"cores", std::to_string(usable_cores())});
  const auto page = static_cast<double>(::sysconf(_SC_PAGESIZE));
  facts.push_back({"memory", gibibytes(page * static_cast<double>(::sysconf(_SC_PHYS_PAGES)))});
  struct statvfs shared {};
  if (::statvfs("/dev/shm", &shared) == 0)
    facts.push_back({"shared memory", gibibytes(static_cast<double>(shared.f_frsize) *
                                                static_cast<double>(shared.f_blocks))});
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0)
    facts.push_back({"open files", dhp::concat(static_cast<std::uint64_t>(files.rlim_cur))});
  utsname system{};
  if (::uname(&system) == 0) facts.push_back({"kernel", system.release});
  facts.push_back({"system", value_in("/etc/os-release", "PRETTY_NAME")});
  return facts;
}

/// Libraries that run with another version than they were compiled with.
[[nodiscard]] inline std::vector<Problem> host_library_problems() {
  std::vector<Problem> problems;
#if defined(DHP_HAS_PROCESSES)
  const std::string running = OpenSSL_version(OPENSSL_VERSION_STRING);
  const std::string compiled = OPENSSL_VERSION_STR;
  if (running != compiled)
    problems.push_back({Verdict::warning,
                        {},
                        dhp::concat("OpenSSL ", running,
                                    " was loaded, but this program was "
                                    "compiled with ",
                                    compiled, "; compile it again, or install that one")});
#endif
  return problems;
}

}  // namespace examples::doctor
