// Names of this machine and process, for messages.
#pragma once

#include <dhp/core/text.hpp>

#include <unistd.h>

#include <string>

namespace dhp::detail {

/// Returns this machine's host name; "?" if it is unknown.
[[nodiscard]] inline std::string host_name() {
  char host[256] = "";
  return ::gethostname(host, sizeof host - 1) == 0 ? host : "?";
}
/// Returns this process's name: "host node7, process 4711".
[[nodiscard]] inline std::string process_name() {
  return concat("host ", host_name(), ", process ", ::getpid());
}

}  // namespace dhp::detail
