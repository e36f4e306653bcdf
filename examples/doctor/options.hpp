// The command line of dhp_doctor.
#pragma once

#include "../options/options.hpp"

#include <optional>
#include <string>

namespace examples::doctor {

struct DoctorOptions {
  RunOptions run{};
  bool quick = false;
  double tolerance = 1;  ///< factor on all limits of slowness
  std::string json;
  std::string calibrate;  ///< writes a file for dhp_plan instead of running checks; empty: off
  std::string fault{};    ///< a fault to inject
  int faulty_rank = 0;
};

/// Fills the options; returns the exit status of a run that ends here (--help, or an error in the options).
[[nodiscard]] std::optional<int> parse_doctor(int argc, char** argv, bool gpu,
                                              DoctorOptions& options);

}  // namespace examples::doctor
