// host_name(): what this machine calls itself; process_name(): where this process runs, for messages.
#pragma once

#include <dhp/core/text.hpp>

#include <unistd.h>

#include <string>
#include <string_view>

namespace dhp {

/// "?" where the system does not say.
[[nodiscard]] inline std::string host_name() {
  char host[256] = "";
  return ::gethostname(host, sizeof host - 1) == 0 ? host : "?";
}

/// Whether this machine calls itself that, with or without a domain: "node7.cluster" for "node7".
[[nodiscard]] inline bool is_own_name(std::string_view name) {
  const auto own = host_name();
  const auto label = [](std::string_view of) { return of.substr(0, of.find('.')); };
  return label(name) == label(own) && label(name) != "localhost";
}

/// "host node7, process 4711"
[[nodiscard]] inline std::string process_name() {
  return concat("host ", host_name(), ", process ", ::getpid());
}

}  // namespace dhp
