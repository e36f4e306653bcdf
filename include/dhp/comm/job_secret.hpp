// job_secret(): what the ranks of a job know and others do not, from the environment: the variable DHP_JOB_SECRET
// itself, or a file that it is better kept in, DHP_JOB_SECRET_FILE, since a machine shows variables to more people.
#pragma once

#include <dhp/core/open_file.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <span>
#include <string>

namespace dhp {

inline constexpr std::size_t shortest_secret_bytes = 16, longest_secret_bytes = 4096;

/// The contents of a file of this user that nobody else may read, without the newline at their end.
[[nodiscard]] inline std::string read_secret_file(const std::string& path) {
  struct stat status {};
  check_system(::stat(path.c_str(), &status) == 0, "DHP_JOB_SECRET_FILE: cannot look at ", path);
  check(S_ISREG(status.st_mode), "DHP_JOB_SECRET_FILE: ", path, " is not a file");
  check(status.st_uid == ::geteuid(), "DHP_JOB_SECRET_FILE: ", path,
        " belongs to another user; use a file of your own");
  check((status.st_mode & (S_IRWXG | S_IRWXO)) == 0, "DHP_JOB_SECRET_FILE: others may use ", path,
        "; chmod 600 makes it yours alone, but who has read it knows the secret");
  const OpenFile file(path, O_RDONLY | O_NONBLOCK);
  check(file.size() <= longest_secret_bytes, "DHP_JOB_SECRET_FILE: ", path, " has ", file.size(),
        " bytes; a secret has ", shortest_secret_bytes, " to ", longest_secret_bytes);
  std::string secret(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(secret.data(), secret.size())));
  if (!secret.empty() && secret.back() == '\n') secret.pop_back();
  if (!secret.empty() && secret.back() == '\r') secret.pop_back();
  return secret;
}

/// Of the values of the two variables; null: not set. Empty where there is no secret.
[[nodiscard]] inline std::string job_secret(const char* variable, const char* file) {
  if (variable == nullptr && file == nullptr) return {};
  check(variable == nullptr || file == nullptr,
        "DHP_JOB_SECRET and DHP_JOB_SECRET_FILE are both set; unset one of them");
  const auto* const name = variable != nullptr ? "DHP_JOB_SECRET" : "DHP_JOB_SECRET_FILE";
  const auto secret = variable != nullptr ? std::string(variable) : read_secret_file(file);
  check(secret.size() >= shortest_secret_bytes && secret.size() <= longest_secret_bytes,
        "the secret of ", name, " has ", secret.size(), " bytes; a secret has ",
        shortest_secret_bytes, " to ", longest_secret_bytes,
        ": head -c 32 /dev/urandom | base64 makes one");
  return secret;
}

/// Of this process.
[[nodiscard]] inline std::string job_secret() {
  return job_secret(std::getenv("DHP_JOB_SECRET"), std::getenv("DHP_JOB_SECRET_FILE"));
}

}  // namespace dhp
