// host_name(): what this machine calls itself; process_name(): where this process runs, for messages.
#pragma once

#include <dhp/core/text.hpp>

#include <unistd.h>

#include <string>

namespace dhp {

/// "?" where the system does not say.
[[nodiscard]] inline std::string host_name() {
  char host[256] = "";
  return ::gethostname(host, sizeof host - 1) == 0 ? host : "?";
}

/// "host node7, process 4711"
[[nodiscard]] inline std::string process_name() {
  return concat("host ", host_name(), ", process ", ::getpid());
}

}  // namespace dhp
