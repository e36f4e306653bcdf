// What dhp_doctor takes on its command line.
#pragma once

#include "../common/options.hpp"
#include "faults.hpp"
#include "limits.hpp"

#include <optional>
#include <string>

namespace examples::doctor {

/// Of a wrong command line, in no way that of what the checks find.
inline constexpr int usage_status = 64;

struct DoctorOptions {
  RunOptions run{};  ///< its mesh has one axis: data
  bool quick = false;
  bool print_limits = false;
  bool self_test = false;
  Limits limits{};
  std::string json;
  std::string storage;      ///< a directory; empty: that check is skipped
  double storage_mb = 256;  ///< that each rank writes and reads there
  std::string nvml = "libnvidia-ml.so.1";
  Faults faults{};
};

/// Options, or the exit status of a run that ends here.
struct ParsedDoctor {
  DoctorOptions options;
  std::optional<int> exit_status;
};

/// gpu: the program is built for GPUs.
[[nodiscard]] ParsedDoctor parse_doctor(int argc, char** argv, bool gpu);

}  // namespace examples::doctor
