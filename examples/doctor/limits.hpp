// Limits: from where on a figure is a warning, and from where on a failure. They are data: --print-limits writes the
// built-in ones, --limits reads others in the same form.
#pragma once

#include "finding.hpp"

#include <array>
#include <optional>

namespace examples::doctor {

/// None: never.
struct Limit {
  std::optional<double> warning{};
  std::optional<double> failed{};
};

struct Limits {
  Limit copy_slowdown{1.5, 3.0};
  Limit gemm_slowdown{1.3, 2.0};
  Limit link_slowdown{2.0, 5.0};
  Limit storage_slowdown{2.0, 5.0};
  Limit network_gb_s{};
  Limit network_latency_us{};
  Limit clock_skew_s{0.1, {}};
  Limit storage_free_gb{10.0, 1.0};
  Limit gpu_temperature_c{85.0, 95.0};
  Limit gpu_clock_share{0.7, 0.4};
  Limit gpu_ecc_corrected{1000.0, {}};
  Limit gpu_ecc_uncorrected{{}, 0.0};
  Limit gpu_remapped_rows{8.0, {}};
  Limit gpu_retired_pages{10.0, 60.0};
};

/// How a limit is called, and whether it is the most or the least that a figure may be.
struct LimitName {
  using Member = Limit Limits::*;
  const char* name;
  Member limit;
  bool least;
};

inline constexpr std::array limit_names{
    LimitName{"copy_slowdown", &Limits::copy_slowdown, false},
    LimitName{"gemm_slowdown", &Limits::gemm_slowdown, false},
    LimitName{"link_slowdown", &Limits::link_slowdown, false},
    LimitName{"storage_slowdown", &Limits::storage_slowdown, false},
    LimitName{"network_gb_s", &Limits::network_gb_s, true},
    LimitName{"network_latency_us", &Limits::network_latency_us, false},
    LimitName{"clock_skew_s", &Limits::clock_skew_s, false},
    LimitName{"storage_free_gb", &Limits::storage_free_gb, true},
    LimitName{"gpu_temperature_c", &Limits::gpu_temperature_c, false},
    LimitName{"gpu_clock_share", &Limits::gpu_clock_share, true},
    LimitName{"gpu_ecc_corrected", &Limits::gpu_ecc_corrected, false},
    LimitName{"gpu_ecc_uncorrected", &Limits::gpu_ecc_uncorrected, false},
    LimitName{"gpu_remapped_rows", &Limits::gpu_remapped_rows, false},
    LimitName{"gpu_retired_pages", &Limits::gpu_retired_pages, false},
};

/// Of a figure that may be at most so much.
[[nodiscard]] inline Verdict above(double value, const Limit& limit) {
  if (limit.failed && value > *limit.failed) return Verdict::failed;
  if (limit.warning && value > *limit.warning) return Verdict::warning;
  return Verdict::ok;
}
/// Of a figure that has to be at least so much.
[[nodiscard]] inline Verdict below(double value, const Limit& limit) {
  if (limit.failed && value < *limit.failed) return Verdict::failed;
  if (limit.warning && value < *limit.warning) return Verdict::warning;
  return Verdict::ok;
}

}  // namespace examples::doctor
