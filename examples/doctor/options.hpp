// The command line of dhp_doctor.
#pragma once

#include "../options/options.hpp"

#include <optional>
#include <string>

namespace examples::doctor {

struct DoctorOptions {
  RunOptions run{};
  bool quick = false;
  double tolerance = 1;  ///< a factor on all limits of slowness
  std::string json;
  std::string calibrate;  ///< a file for dhp_plan, instead of checks; empty: none
  std::string fault{};    ///< made on purpose
  int faulty_rank = 0;
};

/// Fills the options; returns the exit status of a run that ends here (--help, a wrong value).
[[nodiscard]] std::optional<int> parse_doctor(int argc, char** argv, bool gpu,
                                              DoctorOptions& options);

}  // namespace examples::doctor
