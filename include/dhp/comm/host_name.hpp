// host_name(): what this machine calls itself.
#pragma once

#include <unistd.h>

#include <string>

namespace dhp {

/// "?" where the system does not say.
[[nodiscard]] inline std::string host_name() {
  char host[256] = "";
  return ::gethostname(host, sizeof host - 1) == 0 ? host : "?";
}

}  // namespace dhp
